// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"time"
)

const (
	firstWait = 500 * time.Millisecond // doubled after each attempt
	mostWait  = 30 * time.Second
	// patience is the longest wait that the client accepts from the service. For a longer one, the
	// call fails, and the caller finds it in Problem.RetryAfter.
	patience = time.Minute
)

// finalError is an error that ends the attempts.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

// repeat makes a call until it succeeds, or until another attempt would be unsafe or useless.
func (c *Client) repeat(ctx context.Context, in call) (*answer, error) {
	if in.method == http.MethodPost && in.key == "" && !in.again {
		in.key = rand.Text()
	}
	unsure := false // an attempt without a response may have been carried out
	for attempt := 1; ; attempt++ {
		a, err := c.once(ctx, in)
		if err == nil {
			return a, nil
		}
		if unsure && in.method == http.MethodDelete && errors.Is(err, ErrNotFound) {
			return &answer{status: http.StatusNoContent}, nil // deleted by the attempt whose response was lost
		}
		if attempt >= c.attempts || ctx.Err() != nil || !repeatable(in, err) || !in.body.repeatable() {
			return nil, err
		}
		unsure = unsure || !notCarriedOut(err)
		wait, ok := retryWait(attempt, err)
		if end, bounded := ctx.Deadline(); !ok || bounded && time.Until(end) < wait {
			return nil, err
		}
		if stopped := c.wait(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("%w (%w)", err, stopped)
		}
	}
}

// repeatable reports whether a call may be repeated after an error.
func repeatable(in call, err error) bool {
	var f finalError
	var cert *tls.CertificateVerificationError
	if errors.As(err, &f) || errors.As(err, &cert) {
		return false
	}
	if notCarriedOut(err) {
		return true
	}
	harmless := in.again || in.key != ""
	switch in.method {
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		harmless = true
	}
	var p *Problem
	if !errors.As(err, &p) {
		return harmless // no response
	}
	switch p.Status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return harmless
	case http.StatusConflict:
		return in.key != "" && p.Code == "idempotency_in_flight" // one of our attempts is still in progress
	}
	return false
}

// notCarriedOut reports whether a call was certainly not carried out, but may succeed later.
func notCarriedOut(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrRateLimited) || errors.As(err, &op) && op.Op == "dial"
}

// retryWait returns the wait before the next attempt; false if it is too long.
func retryWait(attempt int, err error) (time.Duration, bool) {
	most := min(firstWait<<min(attempt-1, 10), mostWait)
	// Clients disconnected at the same time must not all return at the same time.
	wait := most/2 + mathrand.N(most/2)
	var p *Problem
	if errors.As(err, &p) && p.RetryAfter > 0 {
		wait = p.RetryAfter + mathrand.N(firstWait)
	}
	return wait, wait <= patience
}
