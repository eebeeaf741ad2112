// SPDX-License-Identifier: Apache-2.0

package imapd

import "net"

// ServeTrusted accepts connections that may log in without TLS, for benchmarks.
func (s *Server) ServeTrusted(l net.Listener) error {
	if !s.addListener(l) {
		return l.Close()
	}
	for {
		nc, err := l.Accept()
		if err != nil {
			return nil //nolint:nilerr // the end of the test
		}
		c := newSession(s, nc, remoteAddr(nc))
		c.isTLS = true
		if !s.addSession(c) {
			return nc.Close()
		}
		go func() {
			defer s.sessionsDone.Done()
			defer s.Sessions.remove(c)
			c.serveConn(false)
		}()
	}
}
