// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// read fetches all messages and single ones. The first overview is measured separately: some
// servers then parse data that they cache.
func (r *imapRun) read() error {
	first, err := r.measure("FETCH 1:* "+overview, r.messageCount)
	if err != nil {
		return err
	}
	later, err := r.median(3, "FETCH 1:* "+overview, r.messageCount)
	if err != nil {
		return err
	}
	r.add("envelope", durationMetric("first", first), durationMetric("later", later))
	flags, err := r.median(5, "FETCH 1:* FLAGS", r.messageCount)
	if err != nil {
		return err
	}
	r.add("flags", durationMetric("", flags))
	return r.bodies()
}

func (r *imapRun) bodies() error {
	size := 0
	for _, l := range r.b.messages {
		size += len(l)
	}
	all, err := medianDuration(3, func() error {
		a, err := runCommand(r.c, "FETCH 1:* BODY.PEEK[]", r.messageCount)
		if err == nil && a.Bytes < int64(size) {
			err = fmt.Errorf("all bodies are %d bytes instead of %d", a.Bytes, size)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.add("bodies", durationMetric("", all))
	chance := newRand(7)
	one, err := medianDuration(500, func() error {
		_, err := runCommand(r.c, fmt.Sprintf("FETCH %d BODY.PEEK[]", 1+chance.IntN(r.messageCount)), 1)
		return err
	})
	r.add("body", durationMetric("", one))
	return err
}

// search searches for words in 1 % of the messages: before they are indexed, and after.
func (r *imapRun) search(ctx context.Context) error {
	searches := []struct {
		row, keys string
		found     int
	}{{"subject", "SUBJECT " + rareSubject, r.messageCount / 100}, {"text", "BODY " + rareBody, r.messageCount / 100}, {"unseen", "UNSEEN", r.messageCount}}
	var wrong error
	first := map[string]time.Duration{}
	for _, s := range searches {
		took, err := measure(func() error { return r.checkSearch(s.keys, s.found) })
		if err != nil {
			wrong = errors.Join(wrong, err)
			r.b.report.note("imap/"+s.row, r.s.name, "wrong answer")
			continue
		}
		first[s.row] = took
	}
	if _, err := r.s.waitIndexed(ctx); err != nil {
		return err
	}
	for _, s := range searches {
		if first[s.row] == 0 {
			continue
		}
		later, err := medianDuration(5, func() error { return r.checkSearch(s.keys, s.found) })
		if err != nil {
			return err
		}
		r.add(s.row, durationMetric("first", first[s.row]), durationMetric("later", later))
	}
	return wrong
}

// checkSearch runs a search and checks the number of results.
func (r *imapRun) checkSearch(keys string, want int) error {
	found := -1
	r.c.Untagged = func(line []byte) {
		if bytes.HasPrefix(line, []byte("* ESEARCH")) {
			if _, rest, ok := bytes.Cut(line, []byte("COUNT ")); ok {
				digits, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
				found, _ = strconv.Atoi(string(digits)) // a wrong number is noticed below
			}
		} else if bytes.HasPrefix(line, []byte("* SEARCH")) {
			found = len(bytes.Fields(line)) - 2
		}
	}
	defer func() { r.c.Untagged = nil }()
	if _, err := r.c.Command("SEARCH " + keys); err != nil {
		return err
	}
	if found != want {
		return fmt.Errorf("SEARCH %s found %d messages instead of %d", keys, found, want)
	}
	return nil
}
