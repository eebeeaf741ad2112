// SPDX-License-Identifier: Apache-2.0

// Package clientsetup provides the connection settings for a mailbox: for people, for programs, and
// in the formats of Thunderbird, Outlook and Apple's clients. It uses only the address and never
// checks whether the mailbox exists, so nobody learns that from it.
package clientsetup

import (
	"context"
	"crypto/tls"
	"log/slog"
)

// Service has the endpoints for mail clients.
type Service struct {
	Host string // name in the certificates
	// Ports with implicit TLS, and ports that start in cleartext and require STARTTLS (RFC 8314 §3
	// prefers the former).
	IMAPS, IMAP, Submissions, Submission uint16
	BaseURL                              string // of the HTTP server, without a trailing slash
	// Signer returns the certificate that signs configuration profiles, or nil for none. It may be nil.
	Signer func(context.Context) (*tls.Certificate, error)
	Log    *slog.Logger
}

// Connection security.
const (
	TLS      = "tls"      // implicit
	STARTTLS = "starttls" // required before signing in
)

// Endpoint is a host and port that clients connect to.
type Endpoint struct {
	Host     string
	Port     uint16
	Security string // TLS or STARTTLS
}

// Settings are the settings that a client needs. Username and password are the same for both
// directions; the password is sent in cleartext within TLS.
type Settings struct {
	Address  string
	Username string     // the address
	Name     string     // person's name; may be ""
	Incoming []Endpoint // IMAP, preferred first
	Outgoing []Endpoint // SMTP submission
}

// Settings returns the settings of an address.
func (s *Service) Settings(address, name string) Settings {
	return Settings{
		Address: address, Username: address, Name: name,
		Incoming: []Endpoint{{s.Host, s.IMAPS, TLS}, {s.Host, s.IMAP, STARTTLS}},
		Outgoing: []Endpoint{{s.Host, s.Submissions, TLS}, {s.Host, s.Submission, STARTTLS}},
	}
}
