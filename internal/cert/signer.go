// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"net"
)

// SigningCertificate returns the certificate and key of a name, for signing content that users can
// verify. It returns nil if the authority is known only here. It requests the certificate in a TLS
// handshake, as the sources expect.
func (s *Source) SigningCertificate(ctx context.Context, name string) (*tls.Certificate, error) {
	if s.private {
		return nil, nil
	}
	var found *tls.Certificate
	c := s.TLSConfig()
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (_ *tls.Certificate, err error) {
		found, err = s.getCertificate(hello)
		return found, err
	}
	here, there := net.Pipe()
	defer here.Close()  //nolint:errcheck // nothing is on its way
	defer there.Close() //nolint:errcheck // the same
	done := make(chan error, 1)
	go func() {
		err := tls.Server(here, c).HandshakeContext(ctx)
		_ = here.Close() // so that the other side does not wait
		done <- err
	}()
	//nolint:gosec // who answers is this process
	client := tls.Client(there, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	err := client.HandshakeContext(ctx)
	_ = there.Close()
	if failed := <-done; found == nil && failed != nil {
		return nil, failed
	}
	if found == nil {
		return nil, err
	}
	return found, nil
}
