// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/throttle"
)

// doors are the listening sockets, opened before anything else is started so
// that a port in use is told at once.
type doors struct {
	open    map[string]net.Listener
	serving sync.WaitGroup
}

func (c *Config) listen() (*doors, error) {
	d := &doors{open: map[string]net.Listener{}}
	for name := range ports {
		if name == "dns" {
			continue // the sandbox zone opens it, over UDP too
		}
		l, err := net.Listen("tcp", c.address(name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the %s port: %w", name, err), d.close())
		}
		d.open[name] = l
	}
	return d, nil
}

func (d *doors) close() error {
	var errs []error
	for _, l := range d.open {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// port is where a door really listens.
func (s *Server) port(name string) uint16 {
	if name == "dns" {
		if s.zone == nil {
			return 0
		}
		return netip.MustParseAddrPort(s.zone.Addr()).Port()
	}
	return s.doors.open[name].Addr().(*net.TCPAddr).AddrPort().Port()
}

// clientSetup is where mail clients reach the service: in dev those of this
// machine, which don't know its name.
func (s *Server) clientSetup() *clientsetup.Service {
	host := s.Config.Host
	if s.Config.Dev {
		host = "localhost"
	}
	return &clientsetup.Service{
		Host: host, IMAPS: s.port("imaps"), IMAP: s.port("imap"), Submissions: s.port("submissions"), Submission: s.port("submission"), Base: s.baseURL(),
	}
}

// baseURL is where people and programs reach the service by HTTP: in dev in
// clear on loopback, else at its own name.
func (s *Server) baseURL() string {
	if s.Config.Dev {
		return fmt.Sprintf("http://127.0.0.1:%d", s.port("http"))
	}
	if port := s.port("https"); port != 443 {
		return fmt.Sprintf("https://%s:%d", s.Config.Host, port)
	}
	return "https://" + s.Config.Host
}

// conns limits the connections of a door.
func (s *Server) conns(perNetwork int) *throttle.Conns {
	return &throttle.Conns{Total: 20_000, PerNetwork: perNetwork, Friend: s.friend}
}

// openDoors makes the doors; serve opens them.
func (s *Server) openDoors(context.Context) error {
	if err := s.openCerts(); err != nil {
		return err
	}
	mx := smtpd.Server{Mode: smtpd.MX, Receiver: &smtpd.Incoming{Inbound: s.Inbound}, GreetDelay: 100 * time.Millisecond, Friend: s.friend}
	mx.Strangers = throttle.NewStrangers(s.Config.MXMessages, s.Config.MXUnknown)
	mx.Strangers.Friend = s.friend
	submission := smtpd.Server{Mode: smtpd.Submission, Receiver: &smtpd.Outgoing{Outbox: s.Outbox}, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submissions := smtpd.Server{Mode: smtpd.Submissions, Receiver: submission.Receiver, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submission.Accounts, submissions.Accounts = s.Accounts, s.Accounts
	for _, door := range []*smtpd.Server{&mx, &submission, &submissions} {
		door.Host, door.TLS, door.Conns, door.Log = s.Config.Host, s.certs.TLSConfig(), s.conns(100), s.Log
		s.smtp = append(s.smtp, door)
	}
	s.imap = imapd.New(imapd.Options{ // mail programs keep several connections each, and a whole office may have one address
		Host: s.Config.Host, TLS: s.certs.TLSConfig(), Mailboxes: s.Mailboxes, Folders: s.Folders, Blobs: s.Blobs, Conns: s.conns(1000),
		Log: s.Log, Now: time.Now, KeepLogin: s.Config.IMAPKeepLogin, Junked: s.Inbound.Junked, Sorted: s.Filter.Own.Bayes.Sorted,
	})
	s.Mailboxes.Revoked = s.imap.Revoked
	door := &api.API{
		Accounts: s.Accounts, Audit: s.Audit, Domains: s.Domains, Mailboxes: s.Mailboxes, Folders: s.Folders, Outbox: s.Outbox, Events: s.Events, Keys: s.Keys,
		Suppressions: s.Suppressions, Templates: s.Templates, Webhooks: s.Webhooks, Migrations: s.Migrations, Transfers: s.Transfers, Stats: s.Stats, Limits: s.Limits, Operator: s.Operator, Friend: s.friend,
		Setup: s.clientSetup(), SuspendDomain: s.suspendDomain,
		Signer:  func(ctx context.Context) (*tls.Certificate, error) { return s.certs.Signer(ctx, s.Config.Host) },
		Inbound: s.Inbound, Captured: s.captured, Base: s.baseURL(), Version: Version, Log: s.Log, Spool: s.Config.Data,
	}
	handler, err := s.pages(door)
	if err != nil {
		return err
	}
	proxies, err := prefixes("--http-proxy-from", s.Config.HTTPProxyFrom)
	if err != nil {
		return err
	}
	s.httpProxies = proxies
	handler = s.httpProxies.handler(inHand(s.conns(1000), handler))
	for range 2 { // in clear, and with TLS
		s.http = append(s.http, &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
			TLSConfig: s.certs.TLSConfig("h2", "http/1.1"), ConnContext: connContext,
		})
		s.http[len(s.http)-1].RegisterOnShutdown(door.EndStreams)
	}
	return nil
}
