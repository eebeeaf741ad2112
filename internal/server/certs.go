// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/x509"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/internal/cert"
)

// openCerts creates the certificate source.
func (s *Server) openCerts() (err error) {
	switch s.Config.TLS {
	case "self-signed":
		s.certs, err = cert.NewSelfSigned(cert.SelfSignedOptions{Dir: s.data.Path, Host: s.Config.Host, AllowName: s.Domains.CheckServedName, Log: s.Log})
	case "acme":
		var roots *x509.CertPool
		if s.Config.ACMERoots != "" {
			roots = x509.NewCertPool()
			if err := addRoots(roots, "--acme-roots", s.Config.ACMERoots); err != nil {
				return err
			}
		}
		s.certs, err = cert.NewACME(cert.ACMEOptions{
			Dir: s.data.File("acme"), Host: s.Config.Host, Email: s.Config.ACMEEmail, DirectoryURL: s.Config.ACMEDirectory, Roots: roots,
			Bind: s.Config.Bind, HTTPPort: int(s.port("http")), HTTPSPort: int(s.port("https")), AllowName: s.Domains.CheckServedName,
			DNS: s.resolver, Log: s.Log,
		})
	default:
		pair, err := s.Config.certificateFiles()
		if err != nil {
			return err
		}
		s.certs, err = cert.NewFiles(cert.FileOptions{Pairs: []cert.FilePair{pair}, Log: s.Log})
		return err
	}
	return err
}

// certificateFiles returns the operator's own certificate (--tls CERTIFICATE.pem,KEY.pem).
func (c *Config) certificateFiles() (cert.FilePair, error) {
	certFile, keyFile, ok := strings.Cut(c.TLS, ",")
	if !ok {
		return cert.FilePair{}, errors.New(`--tls must be "acme", "self-signed", or CERTIFICATE.pem,KEY.pem`)
	}
	return cert.FilePair{CertFile: certFile, KeyFile: keyFile}, nil
}
