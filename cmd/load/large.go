// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

const largeSends = 16

// largeAttachments measures the peak memory of the process while it receives the largest messages
// concurrently and sends them to the sink. The service is restarted first, because the peak counts
// from the start.
func (b *bench) largeAttachments(ctx context.Context, s *system, _ int) error {
	if s.process != nil {
		if err := s.process.stop(); err != nil {
			return err
		}
		var err error
		if s.process, err = s.restart(ctx); err != nil {
			return err
		}
	}
	took, err := s.sendLarge(b.options.large)
	if err != nil {
		return err
	}
	b.report.add("large/16", s.name, durationMetric("accepted in", took))
	if err := s.drain(ctx); err != nil || s.process == nil {
		return err
	}
	peak, err := readStatusField(fmt.Sprintf("/proc/%d/status", s.process.cmd.Process.Pid), "VmHWM")
	b.report.add("large/16", s.name, memoryMetric("peak", peak))
	return err
}

// sendLarge sends several messages at once, each over its own connection and with one attachment of
// attached bytes. It returns the total duration.
func (s *system) sendLarge(attached int) (time.Duration, error) {
	file := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("attached"), attached/8))
	out, err := runSessions(largeSends, runLimit{largeSends, time.Hour}, func(i int) (func() error, func() error, error) {
		who := s.senders[i%len(s.senders)]
		body := fmt.Appendf(nil, `{"from_email":%q,"to":["large%d@%s"],"subject":"Large","text":"See the file.","attachments":[{"filename":"file.bin","content":%q}]}`,
			who.from, i, s.externalDomains[i%len(s.externalDomains)], file)
		var c *httpConn
		return func() (err error) {
			if c, err = dialHTTP(s.http); err != nil { // not earlier: all the bodies may take longer than a server waits for a request
				return err
			}
			status, answer, err := c.do("POST", "/outbound/send", who.token, body)
			if err == nil && status != 202 {
				err = fmt.Errorf("%d %s", status, answer)
			}
			if err == nil {
				s.submitted.Add(1)
			}
			return errors.Join(err, c.close())
		}, nil, nil
	})
	return out.elapsed, err
}
