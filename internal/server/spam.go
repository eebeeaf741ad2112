// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
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

// stsHostPrefix is the first label of the host of a domain's MTA-STS policy (RFC 8461 §3.3).
const stsHostPrefix = "mta-sts."

// stsPolicyDomain returns the domain whose MTA-STS policy is requested, from the request's Host.
func stsPolicyDomain(r *http.Request) (domain string, ok bool) {
	name, _, _ := strings.Cut(r.Host, ":")
	if len(name) <= len(stsHostPrefix) || !strings.EqualFold(name[:len(stsHostPrefix)], stsHostPrefix) {
		return "", false
	}
	return name[len(stsHostPrefix):], true
}

// serveSTSPolicy answers requests to mta-sts.<domain>: with the domain's policy, and nothing else.
func (s *Server) serveSTSPolicy(name string, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/.well-known/mta-sts.txt" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	text, ok, err := s.Domains.STSPolicy(r.Context(), strings.ToLower(strings.TrimSuffix(name, ".")))
	switch {
	case err != nil:
		s.Log.Error("an MTA-STS policy could not be read", "domain", name, "error", err)
		http.Error(w, "This did not work; try again later.", http.StatusServiceUnavailable)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write([]byte(text))
}
