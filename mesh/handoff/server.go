package handoff

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// The paths below a receiver's URL, and the header that authorises requests.
const (
	Path = "/aaif/handoff"
	// HeaderRequest carries a signed [transfer.Request] about a handoff that has
	// begun.
	HeaderRequest = "Aee-Handoff-Request"
)

// The actions of a [transfer.Request].
const (
	ActionStatus  = "status"
	ActionCommit  = "commit"
	ActionRefuse  = "refuse"
	ActionReplies = "replies"
	ActionCommand = "command"
)

// HandlerOptions configure [Handler].
type HandlerOptions struct {
	// Bearer, if set, must come with each request, as an Authorization header. It is called for
	// each request, so that the token can change.
	Bearer func() (string, error)
	// Version is the program's version, which capability answers state.
	Version string
	// Beat is the time between two signs of life in a stream of replies. Default
	// 5 seconds.
	Beat time.Duration
	// Ending, if set, ends when the receiver is about to stop: streams of replies end with it,
	// because they last as long as their runs. All other requests that have begun are finished.
	Ending context.Context
}

// maxCommand bounds the body of a command.
const maxCommand = 1 << 20

// Handler serves a receiver over HTTP. It refuses every request without TLS: the server must
// terminate TLS itself, and not leave that to a proxy.
func Handler(r *Receiver, opts HandlerOptions) http.Handler {
	if opts.Beat <= 0 {
		opts.Beat = 5 * time.Second
	}
	s := &server{Receiver: r, opts: opts, followers: map[string][]*follower{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, s.about)
	mux.HandleFunc("POST "+Path, s.receive)
	mux.HandleFunc("GET "+Path+"/{id}", s.asked(ActionStatus, s.status))
	mux.HandleFunc("POST "+Path+"/{id}/commit", s.asked(ActionCommit, s.commit))
	mux.HandleFunc("DELETE "+Path+"/{id}", s.asked(ActionRefuse, s.refuse))
	mux.HandleFunc("GET "+Path+"/{id}/replies", s.asked(ActionReplies, s.replies))
	mux.HandleFunc("POST "+Path+"/{id}/command", s.asked(ActionCommand, s.command))
	return s.guard(mux)
}

type server struct {
	*Receiver
	opts HandlerOptions

	mu        sync.Mutex
	followers map[string][]*follower // of the replies of a handoff, the oldest first
}

// follower is one stream of replies; end ends it.
type follower struct{ end context.CancelFunc }

// maxFollowers is how many streams of replies one handoff may have. Its source needs one, and
// opens another if it notices earlier than the receiver that the first is lost.
const maxFollowers = 4

// followed records a stream of replies, and ends the oldest one if there are too many. leave
// removes the record.
func (s *server) followed(id string, end context.CancelFunc) (leave func()) {
	f := &follower{end}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(s.followers[id], f)
	if len(all) > maxFollowers {
		all[0].end()
		all = slices.Delete(all, 0, 1)
	}
	s.followers[id] = all
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.followers[id], func(other *follower) bool { return other == f })
		if s.followers[id] = left; len(left) == 0 {
			delete(s.followers, id)
		}
	}
}

// guard refuses requests without TLS or, if a bearer token is configured, without that token.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			s.answer(w, http.StatusUpgradeRequired, problem{Code: "plaintext", Message: "handoffs come over TLS only"})
			return
		}
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		if s.opts.Bearer != nil {
			want, err := s.opts.Bearer()
			if err != nil {
				s.cfg.Logger.Error("the bearer token cannot be read", "err", err)
			}
			have, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if err != nil || want == "" || subtle.ConstantTimeCompare([]byte(have), []byte(want)) != 1 {
				s.answer(w, http.StatusUnauthorized, problem{Code: "unauthorized", Message: "the bearer token is missing or wrong"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// About is a receiver's description of itself.
type About struct {
	Platform string `json:"platform"`
	Version  string `json:"version,omitempty"`
}

func (s *server) about(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, About{Platform: s.cfg.Platform, Version: s.opts.Version})
}

// receive reads a streaming handoff. Once its first line has come, with the token, the sender may
// be slow as long as it is not silent and the whole stream does not take too long; its lines are
// read one by one, so it cannot send faster than this process reads.
func (s *server) receive(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != transfer.MediaType {
		s.answer(w, http.StatusUnsupportedMediaType, problem{Code: string(transfer.CodeInvalid), Message: "Content-Type must be " + transfer.MediaType})
		return
	}
	control := http.NewResponseController(w)
	end := time.Now().Add(s.cfg.Whole)
	body := &wary{Reader: r.Body, extend: func() {
		deadline := time.Now().Add(s.cfg.Idle)
		if deadline.After(end) {
			deadline = end
		}
		_ = control.SetReadDeadline(deadline)
	}}
	_ = control.EnableFullDuplex() // so that a refusal is sent at once
	status, err := s.Receive(r.Context(), body)
	if err != nil {
		s.fail(w, err)
		// The sender receives the refusal while it still sends. If the connection were closed at
		// once, the answer could be lost.
		_ = control.Flush()
		_ = control.SetReadDeadline(time.Now().Add(lastWord))
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxRest))
		return
	}
	s.answer(w, http.StatusCreated, status)
}

// maxRest bounds how much of a refused stream is read and discarded.
const maxRest = 64 << 20

// patient extends the deadline with every read.
type patient struct {
	io.Reader
	extend func()
}

func (p *patient) Read(b []byte) (int, error) {
	p.extend()
	return p.Reader.Read(b)
}

// wary gives the first line one deadline. Each later read has a deadline of its own. A read that
// has not ended by then fails with [transfer.ErrTimeout].
type wary struct {
	io.Reader
	extend func()
	begun  bool
	line   bool // the first one is over
}

func (w *wary) Read(b []byte) (int, error) {
	if !w.begun || w.line {
		w.extend()
	}
	w.begun = true
	n, err := w.Reader.Read(b)
	w.line = w.line || bytes.IndexByte(b[:n], '\n') >= 0
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = transfer.ErrTimeout // without the addresses, which are not for the peer
	}
	return n, err
}

// asked refuses requests that are not signed, for this action, by the issuer of the handoff.
func (s *server) asked(action string, next func(http.ResponseWriter, *http.Request, transfer.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := transfer.VerifyRequest(s.cfg.Keys, r.Header.Get(HeaderRequest), s.cfg.Platform, s.cfg.Now(r.Context()))
		if err != nil {
			s.fail(w, err)
			return
		}
		if req.Action != action || req.Handoff != r.PathValue("id") {
			s.answer(w, http.StatusForbidden, problem{Code: string(transfer.CodeTokenState), Message: "the request was signed for something else"})
			return
		}
		h, err := s.load(r.Context(), req.Handoff)
		switch {
		case errors.Is(err, ErrUnknown) && action == ActionRefuse:
		case err != nil:
			s.fail(w, err)
			return
		case h.migration().Issuer != req.Issuer:
			s.answer(w, http.StatusForbidden, problem{Code: string(transfer.CodeTokenKey), Message: "another issuer has sent this handoff"})
			return
		}
		next(w, r, req)
	}
}

func (s *server) status(w http.ResponseWriter, r *http.Request, req transfer.Request) {
	status, err := s.Get(r.Context(), req.Handoff)
	s.outcome(w, status, err)
}

func (s *server) commit(w http.ResponseWriter, r *http.Request, req transfer.Request) {
	status, err := s.Commit(r.Context(), req.Handoff)
	s.outcome(w, status, err)
}

func (s *server) refuse(w http.ResponseWriter, r *http.Request, req transfer.Request) {
	status, err := s.Refuse(r.Context(), req.Handoff, req.Issuer, "the source took the run back")
	s.outcome(w, status, err)
}

// outcome answers with a status. The refusal of an accepted run is answered with its status, too.
func (s *server) outcome(w http.ResponseWriter, status Status, err error) {
	if err != nil && !errors.Is(err, ErrAccepted) {
		s.fail(w, err)
		return
	}
	s.answer(w, http.StatusOK, status)
}

// replies streams the run's replies as lines of JSON, from a number on, until the
// terminal one. Empty objects in between are signs of life.
func (s *server) replies(w http.ResponseWriter, r *http.Request, req transfer.Request) {
	after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if err != nil && r.FormValue("after") != "" {
		s.answer(w, http.StatusBadRequest, problem{Code: string(transfer.CodeInvalid), Message: "after must be a number"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	lines := make(chan Reply)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.followed(req.Handoff, cancel)()
	if s.opts.Ending != nil {
		defer context.AfterFunc(s.opts.Ending, cancel)()
	}
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		failed <- s.follow(ctx, req.Handoff, after, func(reply Reply) error {
			select {
			case lines <- reply:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	enc := json.NewEncoder(w)
	beat := time.NewTicker(s.opts.Beat)
	defer beat.Stop()
	for {
		var line any = struct{}{}
		select {
		case <-beat.C:
		case reply, ok := <-lines:
			if !ok {
				if err := <-failed; err != nil && ctx.Err() == nil {
					s.cfg.Logger.Warn("replies of a handoff", "handoff", req.Handoff, "err", err)
				}
				return
			}
			line = reply
		}
		_ = control.SetWriteDeadline(time.Now().Add(s.cfg.Idle))
		if enc.Encode(line) != nil || control.Flush() != nil {
			cancel()
			for range lines {
			}
			return
		}
	}
}

func (s *server) command(w http.ResponseWriter, r *http.Request, req transfer.Request) {
	// One deadline for the whole body, which is small. It ends with the body.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.cfg.Idle))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if err != nil {
		s.fail(w, fmt.Errorf("read the command: %w: %w", unread(err), err))
		return
	}
	answer, err := s.Command(r.Context(), req.Handoff, body)
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// unread returns the class of an error of reading a body.
func unread(err error) error {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return state.ErrTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transfer.ErrTimeout
	}
	return transfer.ErrStream
}

// A problem is the body of every error answer, with the content of a handoff_error.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// fail answers with the part of an error that a peer may read.
func (s *server) fail(w http.ResponseWriter, err error) {
	status, p := http.StatusUnprocessableEntity, problem{}
	switch {
	case errors.Is(err, ErrUnknown):
		status, p = http.StatusNotFound, problem{"unknown", "there is no such handoff"}
	case errors.Is(err, ErrNotStaged):
		status, p = http.StatusConflict, problem{"not_staged", err.Error()}
	case errors.Is(err, ErrBusy):
		status, p = http.StatusServiceUnavailable, problem{"busy", err.Error()}
	default:
		e := transfer.NewError(err)
		p = problem{string(e.Code), e.Message}
		switch e.Code {
		case transfer.CodeTokenInvalid, transfer.CodeTokenKey, transfer.CodeTokenExpired, transfer.CodeTokenAudience, transfer.CodeTokenState, transfer.CodeTokenUsed:
			status = http.StatusForbidden
		case transfer.CodeTooLarge:
			status = http.StatusRequestEntityTooLarge
		case transfer.CodeRunExists:
			status = http.StatusConflict
		case transfer.CodeInternal:
			status = http.StatusInternalServerError
			s.cfg.Logger.Error("handoff failed", "err", err)
		}
	}
	s.cfg.Logger.Info("handoff refused", "code", p.Code, "status", status, "err", err)
	s.answer(w, status, p)
}

func (s *server) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
