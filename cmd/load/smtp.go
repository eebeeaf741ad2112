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

// submissions measures what the submission door accepts, with TLS and AUTH
// once per session, while the couriers carry it away.
func (b *bench) submissions(ctx context.Context, s *system, _ int) error {
	for _, n := range sessions {
		out, err := s.submit(n, bound{b.options.count, b.options.limit}, s.outside)
		if err != nil {
			return err
		}
		waiting, err := s.backlog()
		if err != nil {
			return err
		}
		b.report.add(fmt.Sprintf("submission/%d", n), s.name, rate(out.rate()),
			duration("p50", out.percentile(50)), duration("p99", out.percentile(99)), count("backlog", waiting))
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// submit sends 4 KiB messages over so many sessions, each as another mailbox.
func (s *system) submit(n int, b bound, domains []string) (outcome, error) {
	var next atomic.Int64
	return together(n, b, func(i int) (func() error, func() error, error) {
		me := s.boxes[i%len(s.boxes)]
		c, err := s.signIn(me)
		if err != nil {
			return nil, nil, err
		}
		message := plain(i, me.address, "someone@"+domains[0], 4<<10)
		return func() error {
			k := int(next.Add(1))
			err := c.Send(me.address, fmt.Sprintf("user%d@%s", k, domains[k%len(domains)]), message)
			if err == nil {
				s.sent.Add(1)
			}
			return err
		}, c.Close, nil
	})
}

func (s *system) signIn(me box) (*smtp.Client, error) {
	c, err := smtp.Dial(s.submission)
	if err != nil {
		return nil, err
	}
	err = c.StartTLS(clientTLS())
	if err == nil && !s.clear {
		err = c.Auth(me.address, me.password)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// arrivals measures what the MX takes from a correspondent outside who signs
// and whose SPF and DMARC pass.
func (b *bench) arrivals(ctx context.Context, s *system, _ int) error {
	for _, boxes := range []int{100, 1} {
		for _, n := range sessions {
			out, err := b.arrive(s, n, min(boxes, len(s.boxes)))
			if err != nil {
				return err
			}
			figures := []figure{rate(out.rate()), duration("p50", out.percentile(50)), duration("p99", out.percentile(99))}
			if s.queued != nil {
				waiting, err := s.queued()
				if err != nil {
					return err
				}
				figures = append(figures, count("backlog", waiting))
			}
			b.report.add(fmt.Sprintf("mx/%d/%d", boxes, n), s.name, figures...)
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// lossy measures what the MX takes while the DNS server loses packets, against
// what it takes while it loses none, in turns.
func (b *bench) lossy(ctx context.Context, s *system, _ int) error {
	defer b.names.Lose(0, false)
	var rates [2][]float64
	for range 3 {
		for i, every := range []int{0, 50} {
			b.names.Lose(every, true)
			out, err := b.arrive(s, 50, min(100, len(s.boxes)))
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], out.rate())
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
	}
	none, some := median(rates[0]), median(rates[1])
	b.report.add("mx-loss", s.name, rateOf("none:", none), rateOf("one in fifty:", some), figure{"×", some / none, ratio})
	return nil
}

// silentDomain is one whose DNS servers never answer.
const silentDomain = "silent-sink.net"

// besideSilent measures how long the mail of ten sessions takes, alone and while a
// hundred others bring mail from names of a domain whose servers never answer.
func (b *bench) besideSilent(ctx context.Context, s *system, _ int) error {
	alone, err := b.arrive(s, 10, min(100, len(s.boxes)))
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	b.names.Silence(silentDomain)
	var stop atomic.Bool
	var others sync.WaitGroup
	var busy sync.WaitGroup // until each of them has begun
	busy.Add(100)
	for i := range 100 {
		others.Go(func() {
			for n := 0; !stop.Load(); n++ {
				from := fmt.Sprintf("writer@n%d-%d.%s", i, n, silentDomain)
				c, err := smtp.DialFrom("127.0.0.9", s.mx) // a network of their own
				if n == 0 {
					busy.Done()
				}
				if err != nil {
					return
				}
				_ = errors.Join(c.Send(from, s.boxes[i%len(s.boxes)].address, plain(i, from, s.boxes[0].address, 4<<10)), c.Close()) // whatever it says
			}
		})
	}
	busy.Wait()
	beside, err := b.arrive(s, 10, min(100, len(s.boxes)))
	stop.Store(true)
	others.Wait()
	if err != nil {
		return err
	}
	b.report.add("mx-silent", s.name, duration("alone", alone.percentile(50)), duration("beside", beside.percentile(50)),
		figure{"×", float64(beside.percentile(50)) / float64(alone.percentile(50)), ratio})
	return s.settle(ctx)
}

func (b *bench) arrive(s *system, n, boxes int) (outcome, error) {
	var next atomic.Int64
	return together(n, bound{b.options.count, b.options.limit}, func(i int) (func() error, func() error, error) {
		from := fmt.Sprintf("writer%d@bench-sink.net", i)
		message, err := b.signer.sign(plain(i, from, s.boxes[0].address, 4<<10), "bench-sink.net")
		if err != nil {
			return nil, nil, err
		}
		c, err := smtp.Dial(s.mx)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			return c.Send(from, s.boxes[int(next.Add(1))%boxes].address, message)
		}, c.Close, nil
	})
}
