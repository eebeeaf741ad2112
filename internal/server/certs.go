// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mailstead/mailstead/internal/cert"
)

// openCerts creates the certificate source.
func (s *Server) openCerts() (err error) {
	switch kind := s.Config.TLS; {
	case kind == "self-signed":
		s.certs, err = cert.NewSelfSigned(cert.SelfSignedOptions{Dir: s.data.Path, Host: s.Config.Host, AllowName: s.Domains.CheckServedName, Log: s.Log})
	case kind == "acme":
		var roots *x509.CertPool
		if file := s.Config.ACMERoots; file != "" {
			pem, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("--acme-roots: %w", err)
			}
			if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(pem) {
				return errors.New("--acme-roots: the file holds no certificate")
			}
		}
		s.certs, err = cert.NewACME(cert.ACMEOptions{
			Dir: s.data.File("acme"), Host: s.Config.Host, Email: s.Config.ACMEEmail, DirectoryURL: s.Config.ACMEDirectory, Roots: roots,
			Bind: s.Config.Bind, HTTPPort: int(s.port("http")), HTTPSPort: int(s.port("https")), AllowName: s.Domains.CheckServedName,
			DNS: s.resolver, Log: s.Log,
		})
	default:
		certFile, keyFile, ok := strings.Cut(kind, ",")
		if !ok {
			return errors.New(`--tls must be "acme", "self-signed", or CERTIFICATE.pem,KEY.pem`)
		}
		s.certs, err = cert.NewFiles(cert.FileOptions{Pairs: []cert.FilePair{{CertFile: certFile, KeyFile: keyFile}}, Log: s.Log})
	}
	return err
}
