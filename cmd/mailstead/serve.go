// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailstead/mailstead/internal/server"
)

type serveCommand struct {
	File     configFile    `name:"config" help:"TOML file with any of these settings." placeholder:"FILE"`
	Settings server.Config `embed:""`
}

func (c *serveCommand) Run() error {
	s, err := startServer(&c.Settings)
	if err != nil {
		return err
	}
	if s.SetupURL != "" {
		fmt.Printf("\nNobody can sign in yet. Set the service up, once, within a day:\n\n  %s\n\n", s.SetupURL)
	}
	return s.wait()
}

// runningServer is a server and the signals that end it.
type runningServer struct {
	*server.Server
	stop context.Context
}

// errStopped reports a signal before the service was ready. The service has cleaned up, so this
// counts as a normal end.
var errStopped = errors.New("stopped while starting")

func startServer(c *server.Config) (*runningServer, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	stop, cancel := signalContext()
	s, err := server.Start(stop, *c, log)
	if err != nil {
		defer cancel()
		if stop.Err() != nil {
			return nil, errStopped
		}
		return nil, err
	}
	go releaseMemoryWhenIdle(stop, s)
	return &runningServer{Server: s, stop: stop}, nil
}

// signalContext returns a context that SIGINT and SIGTERM end. A second signal ends the process at
// once: the shutdown may hang, for example on an unavailable disk.
func signalContext() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// wait waits for SIGTERM or SIGINT, or for a failure of the service, then drains it; a second
// signal ends the process at once.
func (r *runningServer) wait() error { return r.Run(r.stop) }
