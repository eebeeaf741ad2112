// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/mailstead/mailstead/internal/clientsetup"
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
