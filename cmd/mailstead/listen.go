// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/webhook"
)

const (
	// responseTimeout is the limit for a receiver's response, as for a webhook.
	responseTimeout = 15 * time.Second
	// maxRetryDelay is the maximum delay between tries to reach a receiver.
	maxRetryDelay = 2 * time.Second
)

type listenCommand struct {
	Forward  string   `required:"" help:"Where each event is sent, signed like a webhook." placeholder:"URL"`
	Events   []string `help:"Kinds of event, separated by commas; all by default." placeholder:"KIND" field:"type"`
	Secret   string   `env:"MAILSTEAD_WEBHOOK_SECRET" help:"What signs; one that belongs to the API key by default." placeholder:"SECRET"`
	apiFlags `embed:"" set:"scopes=the scope events.read, and mail.read for the content of mail"`
}

// Run forwards events until it is interrupted.
func (c *listenCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	err := c.listen(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *listenCommand) listen(ctx context.Context) error {
	to, err := url.Parse(c.Forward)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return errors.New("--forward must be a URL such as http://localhost:3000/hook")
	}
	if err := c.loadDevSettings(); err != nil {
		return err
	}
	secret := cmp.Or(c.Secret, deriveSecret(c.Key))
	filter := client.EventFilter{}
	if !slices.Contains(c.Events, webhook.AllKinds) {
		filter.Types = c.Events
	}
	once, err := client.New(c.URL, c.Key, client.WithAttempts(1))
	if err != nil {
		return err
	}
	after, seen, err := latestEvent(ctx, once, filter)
	if err != nil {
		return err
	}
	fmt.Printf("Forwarding %s of %s to %s\nSecret %s\n", cmp.Or(strings.Join(filter.Types, ", "), "every event"), c.URL, c.Forward, secret)

	line := &streamTransport{transport: http.DefaultTransport}
	stream, err := client.New(c.URL, c.Key, client.WithHTTPClient(&http.Client{Transport: line}), client.WithWait(line.waitRetry))
	if err != nil {
		return err
	}
	f := newForwarder(to, secret)
	for e, err := range stream.StreamEvents(ctx, filter, after) {
		if err != nil {
			return err
		}
		if e.ID == seen {
			continue
		}
		if err := f.forward(ctx, &e); err != nil {
			return err
		}
	}
	return nil
}

// deriveSecret derives a secret from an API key that reveals nothing about the key. The result is
// always the same, so that the application is configured once.
func deriveSecret(key string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("mailstead listen"))
	return "whsec_" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// latestEvent returns where to begin, and the last event not to forward: no later event is missed,
// however late the stream begins.
func latestEvent(ctx context.Context, c *client.Client, f client.EventFilter) (after, seen string, err error) {
	defer c.CloseIdleConnections()
	page, err := c.ListEvents(ctx, f, client.Paging{Limit: 1})
	if err != nil {
		return "", "", err
	}
	for _, e := range page.Data {
		seen = e.ID
	}
	return cmp.Or(seen, "0"), seen, nil
}

// streamTransport reports when the stream breaks off, and when it continues.
type streamTransport struct {
	transport http.RoundTripper
	broken    bool
}

// RoundTrip implements http.RoundTripper.
func (c *streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.transport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && c.broken {
		c.broken = false
		fmt.Fprintln(os.Stderr, "connected again")
	}
	return resp, err
}

func (c *streamTransport) waitRetry(ctx context.Context, d time.Duration) error {
	if !c.broken {
		c.broken = true
		fmt.Fprintln(os.Stderr, "the connection to the service is lost; trying again")
	}
	return notify.Sleep(ctx, d)
}

// forwarder sends events to a receiver as the service does.
type forwarder struct {
	url    *url.URL
	secret string
	http   *http.Client
}

func newForwarder(to *url.URL, secret string) *forwarder {
	return &forwarder{url: to, secret: secret, http: &http.Client{
		Timeout:       responseTimeout,
		Transport:     &http.Transport{DisableCompression: true}, // with the headers of a webhook, without a proxy
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// forward sends an event and prints the result. It waits while the receiver is down: events keep
// their order, and a restart of the application drops none.
func (f *forwarder) forward(ctx context.Context, e *client.StreamedEvent) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxRetryDelay) {
		began := time.Now()
		status, err := f.post(ctx, e)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			if pause == 100*time.Millisecond {
				fmt.Fprintf(os.Stderr, "nobody listens at %s; waiting\n", f.url.Host)
			}
			if err := notify.Sleep(ctx, pause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			status = "no answer: " + err.Error()
		}
		_, err = fmt.Printf("%s  %-18s %s  %s  %d ms\n", e.Timestamp.Local().Format(time.TimeOnly), e.Type, e.ID, status, time.Since(began).Milliseconds())
		return err
	}
}

// post sends one request, and returns the response's status.
func (f *forwarder) post(ctx context.Context, e *client.StreamedEvent) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url.String(), bytes.NewReader(e.Body))
	if err != nil {
		return "", err
	}
	r.Header = webhook.Sign(f.secret, nil, e.ID, time.Now(), e.Body)
	r.Header[webhook.HeaderEvent] = []string{e.Type}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Mailstead-Webhooks/"+version)
	resp, err := f.http.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return "", err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is reused
	return fmt.Sprint(resp.StatusCode), resp.Body.Close()
}
