// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/spam"
)

// filter makes what asks the filters that the operator has.
func (c *Config) filter() (*spam.Filter, error) {
	f := &spam.Filter{Closed: c.SpamFail == "closed"}
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
	_, err = c.lists()
	return f, err
}

// lists are the block lists to ask.
func (c *Config) lists() (all []spam.List, err error) {
	for _, text := range c.DNSBL {
		l, err := spam.ParseList(text)
		if err != nil {
			return nil, fmt.Errorf("--dnsbl: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// filter makes the filter of mail from outside.
func (s *Server) filter() (*spam.Filter, error) {
	f, err := s.Config.filter()
	if err != nil {
		return nil, err
	}
	f.Log, f.Own = s.Log, &spam.Own{Log: s.Log, Bayes: spam.NewBayes(spam.Bayes{DB: s.DB, Node: s.node, Folders: s.Folders, Now: time.Now, Log: s.Log})}
	lists, err := s.Config.lists()
	if len(lists) > 0 {
		f.Own.Lists = &spam.Lists{DNS: s.resolver, All: lists}
	}
	return f, err
}

// stsPrefix is what the host of a domain's MTA-STS policy is called (RFC 8461
// §3.3).
const stsPrefix = "mta-sts."

// policyOf returns the domain whose MTA-STS policy a request is for, by the name
// under which it came.
func policyOf(r *http.Request) (domain string, ok bool) {
	name, _, _ := strings.Cut(r.Host, ":")
	if len(name) <= len(stsPrefix) || !strings.EqualFold(name[:len(stsPrefix)], stsPrefix) {
		return "", false
	}
	return name[len(stsPrefix):], true
}

// policies answers what is asked of mta-sts.<domain>: the domain's policy, and
// nothing else.
func (s *Server) policies(name string, w http.ResponseWriter, r *http.Request) {
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
