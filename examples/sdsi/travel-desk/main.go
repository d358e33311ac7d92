// Command travel-desk is a Go program that hosts an agent with a schema template: it books flights.
// The worker in front of it checks every payload against the template, so the program gets only
// valid values, and validates the result against the template's response_schema.
//
//	aeemesh up &
//	go run ./examples/sdsi/travel-desk &
//	aeemesh schema show agent.travel_desk
//	aeemesh ask agent.travel_desk 'from Oslo to Rome on 2031-05-05' --model builtin/filler
//
// It has the features of "aeemesh worker": durable tasks, draining, signatures. It also learns: a
// wish of several clients that fits no key becomes a key, by the rules in learning.yml. It does not
// really book flights.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

func main() {
	server := flag.String("nats", os.Getenv("NATS_URL"), "`URL` of the server (default NATS_URL, or the one on this machine)")
	templates := flag.String("templates", "examples/sdsi/travel-desk", "`folder` of the template")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *server, *templates); err != nil {
		log.Fatal(err)
	}
}

// run serves the desk until ctx ends.
func run(ctx context.Context, server, templates string) error {
	rules, err := os.ReadFile(filepath.Join(templates, "learning.yml"))
	if err != nil {
		return err
	}
	cfg, err := adapters.Read(rules)
	if err != nil {
		return err
	}
	set, err := adapters.New(cfg, adapters.Options{})
	if err != nil {
		return err
	}
	defer set.Close()
	w, err := worker.New(worker.Config{
		Agents:    []worker.Agent{{As: "agent.travel_desk", Handler: mesh.Typed(book)}},
		Templates: templates,
		Learn:     true,
		Adapters:  set,
		NATS:      natsconn.Config{URL: server},
		Logger:    slog.Default(),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// flight has the values of the keys of flight_booking.sdsi.json.
type flight struct {
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
	Date        string `json:"departure_date"`
	Cabin       string `json:"cabin_class"`
	Passengers  int    `json:"passenger_count"`
}

// booking is the result, in the form of response_schema.
type booking struct {
	ID         string   `json:"booking_id"`
	Status     string   `json:"status"`
	Flight     string   `json:"flight"`
	Passengers int      `json:"passengers"`
	Requests   []string `json:"requests,omitempty"` // for people; the desk does not check them
}

// book books a flight. Equal values give the same booking, so a task that is repeated after a crash
// of a worker books nothing twice.
func book(ctx context.Context, f flight) (booking, error) {
	if f.Origin == "" { // a task with a text instead of a template's values
		return booking{}, envelope.Errorf(envelope.CodeInputSchema, "this desk takes the template flight_booking, filled in: sdsi.schema.get has it")
	}
	requests := sdsi.Others(ctx)
	for _, l := range sdsi.Learned(ctx) { // keys that this program does not know
		requests = append(requests, l.Key.Name+": "+string(l.Value))
	}
	raw, err := json.Marshal(struct {
		flight
		Requests []string
	}{f, requests})
	if err != nil {
		return booking{}, err
	}
	return booking{
		ID: fmt.Sprintf("BK-%X", sha256.Sum256(raw))[:len("BK-")+8], Status: "confirmed",
		Flight:     fmt.Sprintf("%s to %s on %s, %s", f.Origin, f.Destination, f.Date, strings.ReplaceAll(f.Cabin, "_", " ")),
		Passengers: f.Passengers, Requests: requests,
	}, nil
}
