// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mailstead/mailstead/cmd/load/smtp"
)

// submissions measures how many messages the submission server accepts, with TLS and AUTH once per
// session, while the system delivers them.
func (b *bench) submissions(ctx context.Context, s *system, _ int) error {
	for _, n := range sessionCounts {
		out, err := s.submit(n, runLimit{b.options.count, b.options.limit}, s.externalDomains)
		if err != nil {
			return err
		}
		waiting, err := s.backlog()
		if err != nil {
			return err
		}
		b.report.add(fmt.Sprintf("submission/%d", n), s.name, append(out.metrics(), countMetric("backlog", waiting))...)
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// submit sends 4 KiB messages over n sessions, each as another mailbox.
func (s *system) submit(n int, b runLimit, domains []string) (runResult, error) {
	var next atomic.Int64
	return runSessions(n, b, func(i int) (func() error, func() error, error) {
		me := s.mailboxes[i%len(s.mailboxes)]
		c, err := s.signIn(me)
		if err != nil {
			return nil, nil, err
		}
		message := plainMessage(i, me.address, "someone@"+domains[0])
		return func() error {
			k := int(next.Add(1))
			err := c.Send(me.address, fmt.Sprintf("user%d@%s", k, domains[k%len(domains)]), message)
			if err == nil {
				s.submitted.Add(1)
			}
			return err
		}, c.Close, nil
	})
}

func (s *system) signIn(me mailbox) (*smtp.Client, error) {
	c, err := smtp.Dial(s.submission)
	if err != nil {
		return nil, err
	}
	err = c.StartTLS(clientTLS())
	if err == nil && !s.noAuth {
		err = c.Auth(me.address, me.password)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// inbound measures how many messages the MX accepts from an external sender with DKIM signatures
// and valid SPF and DMARC.
func (b *bench) inbound(ctx context.Context, s *system, _ int) error {
	for _, boxes := range []int{100, 1} {
		for _, n := range sessionCounts {
			out, err := b.receive(s, n, min(boxes, len(s.mailboxes)))
			if err != nil {
				return err
			}
			figures := out.metrics()
			if s.queueLength != nil {
				waiting, err := s.queueLength()
				if err != nil {
					return err
				}
				figures = append(figures, countMetric("backlog", waiting))
			}
			b.report.add(fmt.Sprintf("mx/%d/%d", boxes, n), s.name, figures...)
			if err := s.drain(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// packetLoss measures how many messages the MX accepts while the DNS server drops packets, compared
// with none dropped, in turn.
func (b *bench) packetLoss(ctx context.Context, s *system, _ int) error {
	defer b.names.DropPackets(0, false)
	var rates [2][]float64
	for range 3 {
		for i, every := range []int{0, 50} {
			b.names.DropPackets(every, true)
			out, err := b.receive(s, 50, min(100, len(s.mailboxes)))
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], out.rate())
			if err := s.drain(ctx); err != nil {
				return err
			}
		}
	}
	none, some := median(rates[0]), median(rates[1])
	b.report.add("mx-loss", s.name, labeledRate("none:", none), labeledRate("one in fifty:", some), metric{"×", some / none, ratio})
	return nil
}

// silentDomain is a domain whose DNS servers never respond.
const silentDomain = "silent-sink.net"

// silentDNS measures how long ten sessions take, alone and while a hundred others send mail from
// names of a domain whose DNS servers never respond.
func (b *bench) silentDNS(ctx context.Context, s *system, _ int) error {
	alone, err := b.receive(s, 10, min(100, len(s.mailboxes)))
	if err != nil {
		return err
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	b.names.Ignore(silentDomain)
	var stop atomic.Bool
	var others sync.WaitGroup
	var busy sync.WaitGroup // until each of them has begun
	busy.Add(100)
	for i := range 100 {
		others.Go(func() {
			for n := 0; !stop.Load(); n++ {
				from := fmt.Sprintf("writer@n%d-%d.%s", i, n, silentDomain)
				c, err := smtp.DialFrom("127.0.0.9", s.mx) // from another network
				if n == 0 {
					busy.Done()
				}
				if err != nil {
					return
				}
				_ = errors.Join(c.Send(from, s.mailboxes[i%len(s.mailboxes)].address, plainMessage(i, from, s.mailboxes[0].address)), c.Close()) // any response will do
			}
		})
	}
	busy.Wait()
	beside, err := b.receive(s, 10, min(100, len(s.mailboxes)))
	stop.Store(true)
	others.Wait()
	if err != nil {
		return err
	}
	b.report.add("mx-silent", s.name, durationMetric("alone", alone.percentile(50)), durationMetric("beside", beside.percentile(50)),
		metric{"×", float64(beside.percentile(50)) / float64(alone.percentile(50)), ratio})
	return s.drain(ctx)
}

func (b *bench) receive(s *system, n, boxes int) (runResult, error) {
	var next atomic.Int64
	return runSessions(n, runLimit{b.options.count, b.options.limit}, func(i int) (func() error, func() error, error) {
		from := fmt.Sprintf("writer%d@bench-sink.net", i)
		message, err := b.signer.sign(plainMessage(i, from, s.mailboxes[0].address), "bench-sink.net")
		if err != nil {
			return nil, nil, err
		}
		c, err := smtp.Dial(s.mx)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			return c.Send(from, s.mailboxes[int(next.Add(1))%boxes].address, message)
		}, c.Close, nil
	})
}
