// SPDX-License-Identifier: Apache-2.0

// Package clientsetup says how mail clients reach a mailbox: for people, for
// programs, and in the forms in which Thunderbird, Outlook and Apple's clients
// ask for it. It answers by address alone and never looks whether there is
// such a mailbox, so nobody learns that from it.
package clientsetup

// Service is where the doors for mail clients are.
type Service struct {
	Host string // a name that the certificates are good for
	// The ports of the doors with TLS from the first byte, and of those that
	// begin in clear and demand STARTTLS (RFC 8314 §3 prefers the former).
	IMAPS, IMAP, Submissions, Submission uint16
	BaseURL                              string // of the HTTP door, without a slash at the end
}

// How a connection is secured.
const (
	TLS      = "tls"      // from the first byte
	STARTTLS = "starttls" // demanded before signing in
)

// Endpoint is one door.
type Endpoint struct {
	Host     string
	Port     uint16
	Security string // TLS or STARTTLS
}

// Settings is all that a client needs. Username and password are the same for
// both directions; the password is sent as it is, within TLS.
type Settings struct {
	Address  string
	Username string     // the address
	Name     string     // of the person; may be ""
	Incoming []Endpoint // IMAP, what to prefer first
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
