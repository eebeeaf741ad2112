// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/spam"
)

// newSpamFilter creates the filter for incoming mail: the operator's own filters (rspamd, clamd) or
// the built-in one.
func (c *Config) newSpamFilter(builtin *spam.BuiltinFilter, log *slog.Logger) (*spam.Filter, error) {
	f := &spam.Filter{FailClosed: c.SpamFail == "closed", Builtin: builtin, Log: log}
	if c.SpamTimeout < time.Millisecond || c.SpamTimeout > 5*time.Minute {
		return nil, errors.New("--spam-timeout must be from 1ms to 5m")
	}
	var err error
	if c.Rspamd != "" {
		if f.Rspamd, err = spam.NewRspamd(c.Rspamd, c.SpamTimeout); err != nil {
			return nil, fmt.Errorf("--rspamd: %w", err)
		}
	}
	if c.Clamav != "" {
		if f.Clamav, err = spam.NewClamav(c.Clamav, c.SpamTimeout); err != nil {
			return nil, fmt.Errorf("--clamav: %w", err)
		}
	}
	return f, nil
}

// blockLists returns the DNS block lists (--dnsbl).
func (c *Config) blockLists() (all []spam.BlockList, err error) {
	for _, text := range c.DNSBL {
		l, err := spam.ParseBlockList(text)
		if err != nil {
			return nil, fmt.Errorf("--dnsbl: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// newSpamFilter creates the filter for incoming mail.
func (s *Server) newSpamFilter() (*spam.Filter, error) {
	lists, err := s.Config.blockLists()
	if err != nil {
		return nil, err
	}
	builtin := &spam.BuiltinFilter{Log: s.Log, Bayes: spam.NewBayes(spam.Bayes{DB: s.DB, Node: s.node, Folders: s.Folders, Now: time.Now, Log: s.Log})}
	if len(lists) > 0 {
		builtin.BlockLists = &spam.BlockLists{DNS: s.resolver, Lists: lists}
	}
	return s.Config.newSpamFilter(builtin, s.Log)
}
