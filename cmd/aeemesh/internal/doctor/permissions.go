package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// userInfo is a server's answer about the user and its permissions.
type userInfo struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Data struct {
		User        string `json:"user"`
		Account     string `json:"account"`
		Permissions *struct {
			Publish   *subjectRule `json:"publish"`
			Subscribe *subjectRule `json:"subscribe"`
			Responses *struct{}    `json:"responses"`
		} `json:"permissions"`
	} `json:"data"`
}

type subjectRule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// permissions checks whether this user has the permissions of its role: of a
// worker of the entity, of a sender to it, or of an operator. It asks the
// server for the user's permissions. It does not test a worker's subscriptions,
// because they would take tasks away from running workers. If the server does
// not answer, it tests the rest.
func (d *doctor) permissions(ctx context.Context) {
	need, as, hint, err := d.needs()
	if err != nil {
		d.tell("permissions", "fail", "", "%s", outcome.Text(err))
		return
	}
	if domain := d.app.Conn.Domain; domain != "" {
		hint = strings.Replace(hint, "auth perms ", "auth perms --js-domain "+domain+" ", 1) + " On a server of that domain: without --js-domain."
	}
	d.inbox = d.maySubscribe(d.conn.NewRespInbox())
	info, err := d.userInfo(ctx)
	if err != nil {
		d.tryPermissions(need, as, hint, err)
		return
	}
	d.info = &info
	who := cmp.Or(info.Data.User, "this user")
	p := info.Data.Permissions
	if p == nil || p.Publish == nil && p.Subscribe == nil {
		d.tell("permissions", "ok", "", "%s may do everything in account %s", who, info.Data.Account)
		return
	}
	var missing []string
	for _, s := range need.Subscribe {
		if !p.Subscribe.covers(s) {
			missing = append(missing, "subscribe to "+s)
		}
	}
	missing = append(missing, d.lacksOf(p.Publish, need)...)
	if missing = folded(missing); len(missing) > 0 {
		d.tell("permissions", "fail", hint, "%s, to %s, may not %s", who, as, strings.Join(missing, "; not "))
		return
	}
	if p.Responses != nil {
		d.tell("permissions", "warn", hint, "%s may %s, and with allow_responses publish to every subject that it chooses: take that away", who, as)
		return
	}
	d.tell("permissions", "ok", "", "%s may %s", who, as)
}

// lacksOf returns what a rule does not permit of what need publishes. With --js-domain one of two
// sets suffices: a server of that domain checks the plain subjects, another those of the domain.
func (d *doctor) lacksOf(have *subjectRule, need perms.Permissions) (missing []string) {
	plain := true // nothing is missing of the plain set
	for _, s := range need.Publish {
		plain = plain && have.covers(s)
		if s = d.inDomain(s); !have.covers(s) {
			missing = append(missing, "publish to "+s)
		}
	}
	if plain {
		return nil
	}
	return missing
}

// inDomain returns the subject on which a program with this --js-domain publishes.
func (d *doctor) inDomain(to string) string {
	return perms.Permissions{Publish: []string{to}}.InDomain(d.app.Conn.Domain).Publish[0]
}

// userInfo asks the server for the user's permissions.
func (d *doctor) userInfo(ctx context.Context) (userInfo, error) {
	var info userInfo
	if !d.inbox {
		return info, errors.New("it may not subscribe to an inbox")
	}
	const ask = "$SYS.REQ.USER.INFO"
	if !d.mayAsk(ask) {
		return info, errors.New("it may not publish to " + ask)
	}
	ctx, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
	defer cancel()
	sub, err := d.conn.SubscribeSync(d.conn.NewRespInbox())
	if err != nil {
		return info, err
	}
	defer sub.Unsubscribe()
	if err := d.conn.PublishRequest(ask, sub.Subject, nil); err != nil {
		return info, err
	}
	for here := d.conn.ConnectedServerId(); ; { // the hub of a leaf node answers too, about the leaf node's connection
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return info, err
		}
		info = userInfo{}
		if err := json.Unmarshal(msg.Data, &info); err != nil {
			return info, err
		}
		if info.Server.ID == "" || info.Server.ID == here {
			break
		}
	}
	if info.Data.Account == "" { // every user has one
		return info, errors.New("its answer does not name the user's account")
	}
	return info, nil
}

// tryPermissions tests permissions whose test does no harm, if the server does
// not report them.
func (d *doctor) tryPermissions(need perms.Permissions, as, hint string, why error) {
	var missing, untried []string
	for _, s := range need.Subscribe {
		switch _, _, shared := strings.Cut(s, " "); {
		case shared:
			untried = append(untried, s)
		case !d.maySubscribe(s):
			missing = append(missing, "subscribe to "+s)
		}
	}
	for _, s := range need.Publish {
		try := d.mayPublish
		switch {
		case d.mayTry():
		case strings.HasPrefix(s, "_"):
			try = d.mayAnswer
		case strings.HasPrefix(s, "$JS.API."), strings.HasPrefix(s, micro.APIPrefix+"."):
			try = d.mayAskWrongly
		default:
			untried = append(untried, s)
			continue
		}
		if !try(s) {
			missing = append(missing, "publish to "+d.inDomain(s))
		}
	}
	note := "the server does not report it, because " + outcome.Text(why)
	if len(untried) > 0 {
		note = "not tried, since a client may listen there: " + fewNames(untried) + "; " + note
	}
	if missing = folded(missing); len(missing) > 0 {
		d.tell("permissions", "fail", hint, "this user, to %s, may not %s (%s)", as, strings.Join(missing, "; not "), note)
		return
	}
	d.tell("permissions", "ok", "", "this user may %s, as far as that was tried (%s)", as, note)
}

// maySubscribe tests whether the user may subscribe.
func (d *doctor) maySubscribe(to string) bool {
	sub, err := d.conn.SubscribeSync(to)
	if err != nil {
		return false
	}
	defer sub.Unsubscribe()
	return d.allowed(denial.Subscribe, to)
}

// traceTo is the subject for the server's traces of the messages with which
// publishing is tested.
const traceTo = "aeemesh.doctor.trace"

// mayPublish reports whether the user may publish. If the server has not told it, that is tested
// with a message that the server traces and does not deliver.
func (d *doctor) mayPublish(to string) bool {
	if d.info != nil {
		p := d.info.Data.Permissions
		return p == nil || p.Publish.covers(to) || p.Publish.covers(d.inDomain(to))
	}
	msg := nats.NewMsg(d.inDomain(to))
	msg.Header.Set("Nats-Trace-Dest", traceTo)
	msg.Header.Set("Nats-Trace-Only", "true")
	return d.conn.PublishMsg(msg) == nil && d.allowed(denial.Publish, to)
}

// mayAskServer reports whether the user may publish to a subject of the system account. Of a user to
// whom the server does not even tell its own permissions, that is not tested.
func (d *doctor) mayAskServer(to string) bool { return d.info != nil && d.mayPublish(to) }

// mayTry reports whether mayPublish works: if the user may not publish to the
// trace subject, the server reports that instead.
func (d *doctor) mayTry() bool {
	return d.info != nil || !olderThan(d.conn.ConnectedServerVersion(), oldestServer) && d.mayPublish("aeemesh.doctor.try") && d.allowed(denial.Publish, traceTo)
}

// mayAnswer publishes an answer that no request waits for below an inbox prefix.
func (d *doctor) mayAnswer(all string) bool {
	to := strings.TrimSuffix(all, ">") + strings.TrimPrefix(nats.NewInbox(), nats.InboxPrefix)
	return d.conn.Publish(to, nil) == nil && d.allowed(denial.Publish, to)
}

// mayAsk tests with a message that does no harm to its receiver.
func (d *doctor) mayAsk(to string) bool {
	return d.conn.PublishRequest(to, d.conn.NewRespInbox(), nil) == nil && d.allowed(denial.Publish, to)
}

// mayAskWrongly tests with a request that JetStream refuses as malformed, and
// that services answer in the same way as any request.
func (d *doctor) mayAskWrongly(to string) bool {
	return d.conn.PublishRequest(d.inDomain(to), d.conn.NewRespInbox(), []byte("doctor: this is no request")) == nil && d.allowed(denial.Publish, to)
}

// folded replaces many subjects that differ in their last token only by one
// pattern: a permission that is missing for each of the mesh's streams is one
// problem.
func folded(missing []string) (out []string) {
	const many = 3
	above := func(s string) string { return s[:strings.LastIndex(s, ".")+1] }
	n := map[string]int{}
	for _, s := range missing {
		n[above(s)]++
	}
	for _, s := range missing {
		if p := above(s); strings.HasPrefix(p, "publish to $JS.") && strings.Contains(p, ".API.") && n[p] >= many {
			s = p + "*"
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// allowed waits until the server has processed what was sent, and reports
// whether it refused op on the subject, which a server of --js-domain names without that.
func (d *doctor) allowed(op denial.Op, to string) bool {
	if d.conn.FlushTimeout(d.app.Conn.Wait()) != nil {
		return false
	}
	named := d.inDomain(to)
	_, refused := denial.Why(d.conn, func(d denial.Denial) bool { return d.Is(op, to) || d.Is(op, named) })
	return !refused
}

// covers reports whether a rule permits a subject, which may be "subject
// queue". Without a list of permitted subjects everything is permitted that is
// not denied.
func (r *subjectRule) covers(need string) bool {
	if r == nil {
		return true
	}
	if slices.ContainsFunc(r.Deny, func(denied string) bool { return covers(denied, need) }) {
		return false
	}
	if len(r.Allow) == 0 {
		return true
	}
	return slices.ContainsFunc(r.Allow, func(allowed string) bool { return covers(allowed, need) })
}

// covers reports whether a pattern matches all subjects that need matches; each
// may be followed by a queue.
func covers(pattern, need string) bool {
	pattern, queue, hasQueue := strings.Cut(pattern, " ")
	need, needQueue, _ := strings.Cut(need, " ")
	if hasQueue && !subject.Covers(queue, needQueue) {
		return false
	}
	return subject.Covers(pattern, need)
}
