package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Generate calls the routes, one after the other, until one answers.
func (r *Router) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	return r.walk(ctx, req, onDelta, func(w *way, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
		return w.M.Generate(ctx, req, onDelta)
	})
}

// errCallback marks an error of the caller's callback.
type errCallback struct{ error }

type ask func(w *way, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error)

// walk applies the four steps to one request.
func (r *Router) walk(ctx context.Context, req *model.Request, onDelta func(model.Delta) error, ask ask) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	var f failures
	larger := 0 // the window must be larger than this, because the conversation did not fit
	for _, w := range r.order(req.Avoid, true) {
		if larger > 0 && w.Facts.ContextTokens <= larger {
			continue
		}
		done, try, ok := w.health.enter()
		if !ok {
			try.Route = w.Name()
			f.leave(try)
			continue
		}
		asked, dropped := w.request(req)
		if req.Admit != nil {
			if err := req.Admit(w.Facts.Price()); err != nil {
				done(ctx, errNeutral, 0)
				return nil, err
			}
		}
		told, begun := false, time.Now()
		var heard func(model.Delta) error
		if onDelta != nil {
			heard = func(d model.Delta) error {
				told = true
				if err := onDelta(d); err != nil {
					return errCallback{err}
				}
				return nil
			}
		}
		res, err := guarded(ctx, done, begun, func() (*model.Response, error) { return ask(w, asked, heard) })
		if err == nil {
			w.finish(res, dropped, f.tries)
			return res, nil
		}
		var callback errCallback
		if errors.As(err, &callback) {
			return nil, callback.error
		}
		var failed *model.Error
		if ctx.Err() != nil || !errors.As(err, &failed) {
			return nil, err // the context's error, or ErrNotContinued
		}
		f.add(w, failed)
		switch {
		case told:
			return nil, f.last()
		case failed.Kind == model.ErrContextTooLong:
			if shorter(req, asked) || w.Facts.ContextTokens == 0 {
				return nil, f.last()
			}
			larger = w.Facts.ContextTokens
		case !elsewhere(failed):
			return nil, f.last()
		}
		r.opts.Logger.Warn("model route failed", "route", w.Name(), "kind", string(failed.Kind), "err", failed)
	}
	return nil, f.error()
}

// guarded calls a route and records the result in any case, even for a panic:
// without a result a half-open breaker would stay half-open.
func guarded(ctx context.Context, done outcome, begun time.Time, call func() (*model.Response, error)) (res *model.Response, err error) {
	err = errNeutral // the result of a panic
	defer func() { done(ctx, err, time.Since(begun)) }()
	res, err = call()
	return res, err
}

// elsewhere reports whether another route may answer a request that failed with
// e.
func elsewhere(e *model.Error) bool {
	switch e.Kind {
	case model.ErrUnavailable, model.ErrRateLimited, model.ErrAuth:
		return true
	case model.ErrBadRequest:
		return e.Status == http.StatusNotFound // this provider does not have the model
	}
	return false
}

// shorter reports whether less of a conversation can be sent than before.
func shorter(req, sent *model.Request) bool {
	return req.Fit != nil && len(req.Fit(1)) < len(sent.Messages)
}

// request returns the request for this route, and the parameters that it leaves
// out.
func (w *way) request(req *model.Request) (*model.Request, []string) {
	asked := *req
	asked.Model, asked.Fit, asked.Avoid, asked.Admit = w.Model, nil, nil, nil
	if req.Fit != nil && w.Facts.ContextTokens > 0 {
		asked.Messages = req.Fit(w.Facts.ContextTokens)
	}
	var dropped []string
	if len(req.Params.Extended) > 0 && !w.Extended {
		asked.Params.Extended, dropped = nil, []string{"extended"}
	}
	return &asked, dropped
}

// finish adds the route and the cost to an answer.
func (w *way) finish(res *model.Response, dropped []string, tries []model.Try) {
	res.Provider = w.Provider
	if len(dropped) > 0 {
		res.Dropped = append(slices.Clone(res.Dropped), dropped...)
		slices.Sort(res.Dropped)
	}
	res.Cost, res.Priced = w.Facts.Cost(res.Usage)
	res.Tried = tries
}

// failures are the routes that did not answer a request.
type failures struct {
	tries  []model.Try
	errors []*model.Error // nil for a route that was not called
}

func (f *failures) leave(t model.Try) {
	f.tries, f.errors = append(f.tries, t), append(f.errors, nil)
}

func (f *failures) add(w *way, e *model.Error) {
	f.tries = append(f.tries, model.Try{Route: w.Name(), Kind: e.Kind, RetryAfter: e.RetryAfter, Asked: true})
	f.errors = append(f.errors, e)
}

// last returns the error of the route that was called last, unchanged.
func (f *failures) last() error {
	e := *f.errors[len(f.errors)-1]
	e.Route, e.Tries = f.tries[len(f.tries)-1].Route, f.tries
	return &e
}

// error returns one error for all routes.
func (f *failures) error() error {
	if len(f.tries) == 1 && f.errors[0] != nil {
		return f.last()
	}
	all := &model.Error{Kind: f.kind(), Route: f.tries[0].Route, Tries: f.tries}
	var words []string
	for i, t := range f.tries {
		if t.Kind.Retryable() && t.RetryAfter > 0 && (all.RetryAfter == 0 || t.RetryAfter < all.RetryAfter) {
			all.RetryAfter = t.RetryAfter
		}
		if e := f.errors[i]; e != nil {
			words = append(words, t.Route+": "+e.Error())
		} else {
			words = append(words, t.String())
		}
	}
	all.Message = fmt.Sprintf("no route answered: %s", strings.Join(words, "; "))
	return all
}

// kind returns the common kind: the one that is likely to be resolved first.
func (f *failures) kind() model.Kind {
	for _, k := range []model.Kind{model.ErrUnavailable, model.ErrRateLimited, model.ErrAuth, model.ErrContextTooLong} {
		if slices.ContainsFunc(f.tries, func(t model.Try) bool { return t.Kind == k }) {
			return k
		}
	}
	return model.ErrBadRequest
}
