// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
)

// apiSends measures how many messages POST /outbound/send accepts while the service delivers them:
// over several connections, for one account and for many.
func (b *bench) apiSends(ctx context.Context, s *system, _ int) error {
	for _, accounts := range []int{1, 100} {
		for _, conns := range apiConns {
			out, err := s.send(conns, runLimit{b.options.count, b.options.limit}, s.senders[:min(accounts, len(s.senders))], s.externalDomains)
			if err != nil {
				return err
			}
			waiting, err := s.backlog()
			if err != nil {
				return err
			}
			b.report.add(fmt.Sprintf("api/%d/%d", accounts, conns), s.name, append(out.metrics(), countMetric("backlog", waiting))...)
			if err := s.drain(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends 4 KiB texts to one recipient each by the API, with accounts and recipient domains in
// turn.
func (s *system) send(conns int, b runLimit, from []sender, domains []string) (runResult, error) {
	text, err := json.Marshal(randomText(newRand(1), 4<<10))
	if err != nil {
		return runResult{}, err
	}
	var n atomic.Int64
	return runSessions(conns, b, func(int) (func() error, func() error, error) {
		c, err := dialHTTP(s.http)
		if err != nil {
			return nil, nil, err
		}
		var body []byte
		return func() error {
			i := int(n.Add(1))
			who := from[i%len(from)]
			body = fmt.Appendf(body[:0], `{"from_email":%q,"to":["user%d@%s"],"subject":"Message %d","text":%s}`, who.from, i, domains[i%len(domains)], i, text)
			status, answer, err := c.do("POST", "/outbound/send", who.token, body)
			if err != nil {
				return err
			}
			if status != 202 {
				return fmt.Errorf("%d %s", status, answer)
			}
			s.submitted.Add(1)
			return nil
		}, c.close, nil
	})
}
