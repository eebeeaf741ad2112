// SPDX-License-Identifier: Apache-2.0

// Package mailauth signs mail with DKIM (RFC 6376). It also checks whether a domain's published
// DKIM, SPF and DMARC records are right, and explains to the owner what to change. A Verifier
// authenticates mail from other hosts. The package stores nothing and does no I/O except DNS
// queries.
package mailauth

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

// maxHeader is the maximum size of a message's header, in bytes.
const maxHeader = 1 << 20

// Errors of Sign for messages that cannot be signed.
var (
	ErrNoFrom        = errors.New("mailauth: the message has no From field")
	ErrUnclearAuthor = errors.New("mailauth: the author of the message can't be told")
	ErrHeaderTooBig  = errors.New("mailauth: the message's header is larger than 1 MiB, or has too many fields")
)

// signedField is a header field that signatures cover. With oversign they cover one more field of
// the name than there is, so that none can be added (RFC 6376 section 8.15). oversignPresent does
// so only if there is one, since mailing lists add their own.
type signedField struct {
	name            string
	oversign        bool
	oversignPresent bool
}

// signedFields returns the signed fields in the order of h=, From first.
func signedFields() []signedField {
	return []signedField{
		{name: "From", oversign: true}, {name: "To", oversign: true}, {name: "Cc", oversign: true}, {name: "Subject", oversign: true}, {name: "Date", oversign: true}, {name: "Message-ID", oversign: true},
		{name: "Reply-To", oversign: true}, {name: "Content-Type", oversign: true},
		{name: "Sender"}, {name: "In-Reply-To"}, {name: "References"},
		{name: "MIME-Version"}, {name: "Content-Transfer-Encoding"}, {name: "Content-Disposition"},
		{name: "Content-ID"}, {name: "Content-Language"},
		{name: "List-Unsubscribe", oversignPresent: true}, {name: "List-Unsubscribe-Post", oversignPresent: true}, {name: "List-Id"}, {name: "List-Help"},
		{name: "List-Post"}, {name: "List-Subscribe"}, {name: "List-Owner"}, {name: "List-Archive"},
		{name: "Feedback-ID"}, {name: "Auto-Submitted"},
		{name: "Resent-From"}, {name: "Resent-Sender"}, {name: "Resent-To"}, {name: "Resent-Cc"},
		{name: "Resent-Date"}, {name: "Resent-Message-ID"},
	}
}

// Key is a private key and the selector that publishes its public key.
type Key struct {
	Selector string
	Private  crypto.Signer // *rsa.PrivateKey or ed25519.PrivateKey
}

// Signer signs for one domain with one or more keys. It is safe for concurrent use.
type Signer struct {
	Domain string // d=, as A-labels; the domain of From
	Keys   []Key  // one signature each, in this order
	Now    func() time.Time
}

// Sign returns the DKIM-Signature fields to prepend to a message, each ending in CRLF. It reads
// header and body once, regardless of the number of keys. It uses relaxed/relaxed and no l=. Bare CR and
// LF count as CRLF, as smtpclient sends them.
func (s *Signer) Sign(msg []byte) ([]byte, error) {
	header, body := splitHeader(msg)
	var h relaxedHash
	h.reset()
	h.write(body)
	return s.sign(header, h.sum())
}

// SignReader is Sign for a message that is too large for memory.
func (s *Signer) SignReader(r io.Reader) ([]byte, error) {
	header, body, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	return s.sign(header, body)
}

// headerBufferSize is enough for the header of most messages, in bytes.
const headerBufferSize = 8 << 10

// readMessage reads a message's header, of at most 1 MiB, and hashes its body in relaxed form.
func readMessage(r io.Reader) (header []byte, body [sha256.Size]byte, err error) {
	var h relaxedHash
	h.reset()
	buf := make([]byte, 0, headerBufferSize)
	for line := 0; header == nil; {
		if len(buf) == cap(buf) {
			if cap(buf) >= maxHeader {
				return nil, body, ErrHeaderTooBig
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		var end int
		if end, line = headerEndAfter(buf, line); end >= 0 || errors.Is(err, io.EOF) {
			var rest []byte
			header, rest = splitHeader(buf)
			h.write(rest)
			if len(buf) > headerBufferSize {
				buf = make([]byte, headerBufferSize) // header still uses the old buffer
			} else if header = bytes.Clone(header); header == nil {
				header = []byte{}
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, body, fmt.Errorf("reading the message to sign: %w", err)
		}
	}
	if _, err := io.CopyBuffer(&h, struct{ io.Reader }{r}, buf[:cap(buf)]); err != nil {
		return nil, body, fmt.Errorf("reading the message to sign: %w", err)
	}
	return header, h.sum(), nil
}

func (s *Signer) sign(header []byte, bodyDigest [sha256.Size]byte) ([]byte, error) {
	if len(header) > maxHeader {
		return nil, ErrHeaderTooBig
	}
	names, signed := selectFields(header, signedFields())
	if len(names) > maxSignedFields {
		return nil, ErrHeaderTooBig
	}
	if !bytes.HasPrefix(signed, []byte("from:")) {
		return nil, ErrNoFrom
	}
	if doubt := message.Header(header).Authors().Problem; doubt != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnclearAuthor, doubt)
	}
	bh := base64.StdEncoding.EncodeToString(bodyDigest[:])
	list := foldNames(names)
	at := s.timestamp()
	var out []byte
	for _, k := range s.Keys {
		alg, _, err := algorithmOf(k.Private)
		if err != nil {
			return nil, err
		}
		one, err := k.sign("DKIM-Signature: v=1; a="+string(alg)+"-sha256; c=relaxed/relaxed; d="+s.Domain+";\r\n"+
			"\ts="+k.Selector+"; t="+at+";\r\n"+
			"\th="+list+";\r\n"+
			"\tbh="+bh+";\r\n\tb=", signed)
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// sign completes a field with the signature over text and the field itself.
func (k *Key) sign(field string, text []byte) ([]byte, error) {
	_, opts, err := algorithmOf(k.Private)
	if err != nil {
		return nil, err
	}
	d := sha256.New()
	_, _ = d.Write(text)
	own := appendRelaxed(nil, []byte(field))
	_, _ = d.Write(own[:len(own)-2]) // without CRLF (section 3.7)
	sig, err := k.Private.Sign(rand.Reader, d.Sum(nil), opts)
	if err != nil {
		return nil, fmt.Errorf("signing with DKIM key %s: %w", k.Selector, err)
	}
	return appendFolded([]byte(field), base64.StdEncoding.EncodeToString(sig)), nil
}

// timestamp returns the time of signing for t=.
func (s *Signer) timestamp() string {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	return strconv.FormatInt(now().Unix(), 10)
}

func algorithmOf(key crypto.Signer) (Algorithm, crypto.SignerOpts, error) {
	switch key.(type) {
	case *rsa.PrivateKey:
		return RSA, crypto.SHA256, nil
	case ed25519.PrivateKey:
		return Ed25519, crypto.Hash(0), nil // the key signs the digest itself (RFC 8463 section 3)
	}
	return "", nil, fmt.Errorf("mailauth: a key of type %T cannot sign mail", key)
}

// foldNames returns the folded value of h=.
func foldNames(names []string) string {
	var b strings.Builder
	width := 10
	for i, n := range names {
		if i > 0 {
			b.WriteByte(':')
			width++
		}
		if width+len(n) > 74 {
			b.WriteString("\r\n\t ")
			width = 9
		}
		b.WriteString(n)
		width += len(n)
	}
	return b.String()
}

func appendFolded(out []byte, sig string) []byte {
	for width := 64; len(sig) > width; width = 70 {
		out = append(append(out, sig[:width]...), "\r\n\t"...)
		sig = sig[width:]
	}
	return append(append(out, sig...), "\r\n"...)
}
