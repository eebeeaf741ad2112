// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

const (
	firstWait = 500 * time.Millisecond // doubled from one to the next
	mostWait  = 30 * time.Second
	// patience is the longest wait that the service may ask for; beyond it the
	// caller has to decide, who finds it in Problem.RetryAfter.
	patience = time.Minute
)

// final is an error after which no further attempt is made.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// repeat makes a call until it succeeds, or until another attempt could do
// harm or is of no use.
func (c *Client) repeat(ctx context.Context, in call) (*answer, error) {
	unsure := false // an attempt may have been carried out although no answer came
	for attempt := 1; ; attempt++ {
		a, err := c.once(ctx, in)
		if err == nil {
			return a, nil
		}
		if unsure && in.method == http.MethodDelete && errors.Is(err, ErrNotFound) {
			return &answer{status: http.StatusNoContent}, nil // gone since the attempt whose answer was lost
		}
		if attempt >= c.attempts || ctx.Err() != nil || !repeatable(in, err) || !in.body.repeatable() {
			return nil, err
		}
		unsure = unsure || !refused(err)
		wait, ok := pause(attempt, err)
		if end, bounded := ctx.Deadline(); !ok || bounded && time.Until(end) < wait {
			return nil, err
		}
		if stopped := c.wait(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("%w (%w)", err, stopped)
		}
	}
}

// repeatable reports whether a call may be made again after an error.
func repeatable(in call, err error) bool {
	var f final
	var cert *tls.CertificateVerificationError
	if errors.As(err, &f) || errors.As(err, &cert) {
		return false
	}
	if refused(err) {
		return true
	}
	harmless := in.again || in.key != ""
	switch in.method {
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		harmless = true
	}
	var p *Problem
	if !errors.As(err, &p) {
		return harmless // no answer came
	}
	switch p.Status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return harmless
	case http.StatusConflict:
		return in.key != "" && p.Code == "idempotency_in_flight" // an attempt of ours is still at it
	}
	return false
}

// refused reports whether a call was certainly not carried out, and may be
// some time later.
func refused(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrRateLimited) || errors.As(err, &op) && op.Op == "dial"
}

// pause is the wait before the next attempt; false if it is too long.
func pause(attempt int, err error) (time.Duration, bool) {
	most := min(firstWait<<min(attempt-1, 10), mostWait)
	// Clients that were cut off together shall not come back together.
	wait := most/2 + rand.N(most/2)
	var p *Problem
	if errors.As(err, &p) && p.RetryAfter > 0 {
		wait = p.RetryAfter + rand.N(firstWait)
	}
	return wait, wait <= patience
}
