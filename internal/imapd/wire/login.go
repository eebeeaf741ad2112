// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"errors"
)

// ErrAuthCancelled says that the client gave up an AUTHENTICATE exchange with
// "*"; the command is answered with BAD (RFC 9051 §6.2.2).
var ErrAuthCancelled = errors.New("authentication cancelled by the client")

// Login is LOGIN (RFC 9051 §6.2.3).
type Login struct {
	Username string
	Password string `json:"-"`
}

// Name returns the command's name.
func (*Login) Name() string { return "LOGIN" }

// String keeps the password out of logs.
func (*Login) String() string { return "LOGIN" }

func (r *Reader) login() Command {
	user := r.astring()
	r.sp()
	return &Login{user, r.astring()}
}

// Authenticate is AUTHENTICATE, with an initial response if the client sent
// one (SASL-IR, RFC 4959).
type Authenticate struct {
	Mechanism  string // upper case
	Initial    []byte `json:"-"` // decoded; empty if the client sent "="
	HasInitial bool
}

// Name returns the command's name.
func (*Authenticate) Name() string { return "AUTHENTICATE" }

// String keeps the response out of logs.
func (a *Authenticate) String() string { return "AUTHENTICATE " + a.Mechanism }

func (r *Reader) authenticate() Command {
	cmd := Authenticate{Mechanism: r.nonEmptyWord()}
	if !r.accept(' ') {
		return &cmd
	}
	rest := r.line[r.pos:]
	r.pos = len(r.line)
	cmd.HasInitial = true
	if string(rest) == "=" {
		return &cmd
	}
	var err error
	if cmd.Initial, err = decodeBase64(rest); err != nil || len(rest) == 0 {
		fail(bad("The initial response is not base64."))
	}
	return &cmd
}

// ReadSASLResponse reads the client's answer to a challenge and decodes it. It
// returns ErrAuthCancelled for "*", and a *Error for what is not base64: both end
// the exchange.
func (r *Reader) ReadSASLResponse() ([]byte, error) {
	line, err := r.readNonCommand()
	if err != nil {
		return nil, err
	}
	switch string(line) {
	case "*":
		return nil, ErrAuthCancelled
	case "=": // as in an initial response; go-imap writes an empty one so
		return nil, nil
	}
	b, err := decodeBase64(line)
	if err != nil {
		r.skipRest = true
		return nil, bad("The response is not base64.")
	}
	return b, nil
}

func decodeBase64(b []byte) ([]byte, error) {
	return base64.StdEncoding.AppendDecode(nil, b)
}
