// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// listeners holds the listening sockets. They are opened before anything else is started, so that
// a port in use is reported at once.
type listeners struct {
	byName  map[string]net.Listener
	serving sync.WaitGroup
}

func (c *Config) listen() (*listeners, error) {
	d := &listeners{byName: map[string]net.Listener{}}
	for name := range standardPorts {
		if name == "dns" {
			continue // the sandbox zone opens it, over UDP too
		}
		l, err := net.Listen("tcp", c.listenAddr(name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the %s port: %w", name, err), d.close())
		}
		d.byName[name] = l
	}
	return d, nil
}

func (d *listeners) close() error {
	var errs []error
	for _, l := range d.byName {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// port returns the actual port of a listener.
func (s *Server) port(name string) uint16 {
	if name == "dns" {
		if s.dnsServer == nil {
			return 0
		}
		return netip.MustParseAddrPort(s.dnsServer.Addr()).Port()
	}
	return s.listeners.byName[name].Addr().(*net.TCPAddr).AddrPort().Port()
}

// baseURL returns the service's HTTP URL: in dev without TLS on loopback, else HTTPS at its own
// name.
func (s *Server) baseURL() string {
	if s.Config.Dev {
		return fmt.Sprintf("http://127.0.0.1:%d", s.port("http"))
	}
	if port := s.port("https"); port != 443 {
		return fmt.Sprintf("https://%s:%d", s.Config.Host, port)
	}
	return "https://" + s.Config.Host
}

// connLimiter returns a limiter for the connections of one server.
func connLimiter(perNetwork int, exempt func(netip.Addr) bool) *ratelimit.ConnLimiter {
	return &ratelimit.ConnLimiter{Total: 20_000, PerNetwork: perNetwork, Exempt: exempt}
}

// openServers creates the servers; serve starts them.
func (s *Server) openServers(context.Context) error {
	if err := s.openCerts(); err != nil {
		return err
	}
	submission := &smtpd.SubmissionBackend{Outbox: s.Outbox}
	s.smtpServers = []*smtpd.Server{
		{
			Mode: smtpd.MX, Backend: &smtpd.InboundBackend{Inbound: s.Inbound}, GreetDelay: 100 * time.Millisecond, SkipGreetDelay: s.isExempt,
			ClientLimiter: ratelimit.NewClientLimiter(s.Config.MXMessages, s.Config.MXUnknown, s.isExempt),
		},
		{Mode: smtpd.Submission, Backend: submission, Mailboxes: s.Mailboxes, Accounts: s.Accounts, Hub: s.Hub},
		{Mode: smtpd.SubmissionTLS, Backend: submission, Mailboxes: s.Mailboxes, Accounts: s.Accounts, Hub: s.Hub},
	}
	for _, server := range s.smtpServers {
		server.Host, server.TLS, server.ConnLimiter, server.Log = s.Config.Host, s.certs.TLSConfig(), connLimiter(100, s.isExempt), s.Log
	}
	s.imapServer = imapd.New(imapd.Options{ // mail clients open several connections, and an office may share one address
		Host: s.Config.Host, TLS: s.certs.TLSConfig(), Mailboxes: s.Mailboxes, Folders: s.Folders, Searcher: s.Searcher, Blobs: s.Blobs, ConnLimiter: connLimiter(1000, s.isExempt),
		Sessions: s.imapSessions, Log: s.Log, Now: time.Now, DisableUnauthenticate: s.Config.IMAPKeepLogin, OnJunk: s.Inbound.RecordJunked, OnCopy: s.Filter.Builtin.Bayes.AddTrainingTasks,
	})
	return s.openHTTPServers()
}
