package ack

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Subject holds the fields of an ack subject.
type Subject struct {
	Stream, Consumer string
	Delivered        uint64    // how often the message was delivered, this time included
	Seq              uint64    // in the stream
	Pending          uint64    // how many messages the consumer has not delivered
	Stored           time.Time // when the message was stored
}

// Parse parses the ack subjects of nats-server:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<the same>[.<more>]
func Parse(s string) (Subject, error) {
	const shape = "%q is no subject of an acknowledgement"
	rest, ok := strings.CutPrefix(s, "$JS.ACK.")
	if !ok || strings.ContainsAny(s, " \t\r\n*>") {
		return Subject{}, fmt.Errorf(shape, s)
	}
	var tokens [12]string
	n := 0
	for more := true; more; n++ {
		if n == len(tokens) {
			return Subject{}, fmt.Errorf(shape, s)
		}
		tokens[n], rest, more = strings.Cut(rest, ".")
		if tokens[n] == "" {
			return Subject{}, fmt.Errorf(shape, s)
		}
	}
	t := tokens[:]
	switch {
	case n >= 9:
		t = t[2:]
	case n != 7:
		return Subject{}, fmt.Errorf(shape, s)
	}
	a := Subject{Stream: t[0], Consumer: t[1]}
	var nanos uint64
	for _, f := range []struct {
		to   *uint64
		text string
	}{{&a.Delivered, t[2]}, {&a.Seq, t[3]}, {&nanos, t[5]}, {&a.Pending, t[6]}} {
		v, err := strconv.ParseUint(f.text, 10, 63)
		if err != nil {
			return Subject{}, fmt.Errorf(shape, s)
		}
		*f.to = v
	}
	a.Stored = time.Unix(0, int64(nanos)).UTC()
	return a, nil
}
