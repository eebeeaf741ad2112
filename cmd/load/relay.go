// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// relay measures outgoing mail from the first message submitted to the last one at the sink, and
// the number of connections.
func (b *bench) relay(ctx context.Context, s *system, _ int) error {
	for _, domains := range []int{1, 100} {
		if err := s.drain(ctx); err != nil {
			return err
		}
		const forever = 10 * time.Minute
		before, begin := s.sink.Counts(), time.Now()
		var err error
		if s.http != "" {
			_, err = s.send(10, runLimit{b.options.relay, forever}, s.senders[:1], s.externalDomains[:min(domains, len(s.externalDomains))])
		} else {
			_, err = s.submit(10, runLimit{b.options.relay, forever}, s.externalDomains[:min(domains, len(s.externalDomains))])
		}
		if err == nil {
			waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
			err = s.sink.WaitMessages(waiting, before.Messages+int64(b.options.relay))
			cancel()
		}
		if err != nil {
			return err
		}
		took, after := time.Since(begin), s.sink.Counts()
		b.report.add(fmt.Sprintf("relay/%d", domains), s.name, rateMetric(float64(b.options.relay)/took.Seconds()),
			countMetric("new connections", after.Connections-before.Connections))
	}
	return nil
}
