// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// newVerifier creates the verifier for incoming mail.
func (s *Server) newVerifier() (*mailauth.Verifier, error) {
	trusted, err := s.Config.trustedForwarders()
	j := &mailauth.Verifier{DNS: s.resolver, TrustedSealers: trusted, Now: time.Now}
	if s.offline() {
		j.Timeout = 2 * time.Second
	}
	return j, err
}

// offline reports whether only the sandbox's own DNS may be available, as on a train. Then DNS
// timeouts are short, and nothing is rejected because DNS fails.
func (s *Server) offline() bool { return s.Config.Dev && s.Config.Resolver == "" }

// trustedForwarders returns the trusted forwarders as normalized domains.
func (c *Config) trustedForwarders() ([]string, error) {
	var names []string
	for _, text := range c.TrustedForwarder {
		name, err := address.ParseDomain(text)
		if err != nil {
			return nil, errors.New("--trusted-forwarder must be domains such as lists.example.com")
		}
		names = append(names, name)
	}
	return names, nil
}
