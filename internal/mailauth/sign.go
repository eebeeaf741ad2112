// SPDX-License-Identifier: Apache-2.0

// Package mailauth signs mail for its domain with DKIM (RFC 6376), and judges
// whether the DKIM, SPF and DMARC records that a domain has published are the
// ones that it needs, in words that its owner can act on. A Judge finds out who
// stands behind mail from elsewhere. The package keeps nothing, and asks no one
// but the DNS.
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

// maxHeader bounds a message's header, in bytes.
const maxHeader = 1 << 20

// The errors of Sign for messages that cannot be signed.
var (
	ErrNoFrom       = errors.New("mailauth: the message has no From field")
	ErrAuthor       = errors.New("mailauth: the author of the message can't be told")
	ErrHeaderTooBig = errors.New("mailauth: the message's header is larger than 1 MiB")
)

// signedField is a header field that signatures cover. With over they cover
// one more of the name than there is, so that none can be added afterwards
// (RFC 6376 section 8.15).
type signedField struct {
	name string
	over bool
}

// signedFields lists them in the order of h=; From is the first.
func signedFields() []signedField {
	return []signedField{
		{"From", true}, {"To", true}, {"Cc", true}, {"Subject", true}, {"Date", true}, {"Message-ID", true},
		{"Reply-To", true}, {"Content-Type", true},
		{"Sender", false}, {"In-Reply-To", false}, {"References", false},
		{"MIME-Version", false}, {"Content-Transfer-Encoding", false}, {"Content-Disposition", false},
		{"Content-ID", false}, {"Content-Language", false},
		{"List-Unsubscribe", false}, {"List-Unsubscribe-Post", false}, {"List-Id", false}, {"List-Help", false},
		{"List-Post", false}, {"List-Subscribe", false}, {"List-Owner", false}, {"List-Archive", false},
		{"Feedback-ID", false}, {"Auto-Submitted", false},
		{"Resent-From", false}, {"Resent-Sender", false}, {"Resent-To", false}, {"Resent-Cc", false},
		{"Resent-Date", false}, {"Resent-Message-ID", false},
	}
}

// Key is a private key under the selector at which its public half stands.
type Key struct {
	Selector string
	Private  crypto.Signer // *rsa.PrivateKey or ed25519.PrivateKey
}

// Signer signs for one domain with one or more keys. It may be used by many
// goroutines at once.
type Signer struct {
	Domain string // d=, as A-labels; the domain of From
	Keys   []Key  // one signature each, in this order
	Now    func() time.Time
}

// Sign returns the DKIM-Signature fields of a message, each ending in CRLF,
// to be put before it. Header and body are read once, whatever the number of
// keys; relaxed/relaxed, no l=. Bare CR and LF count as CRLF, as smtpclient
// sends them.
func (s *Signer) Sign(msg []byte) ([]byte, error) {
	header, body := cutHeader(msg)
	var h bodyHash
	h.reset()
	h.write(body)
	return s.sign(header, h.sum())
}

// SignReader does what Sign does for a message that is too large to hold.
func (s *Signer) SignReader(r io.Reader) ([]byte, error) {
	header, body, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	return s.sign(header, body)
}

// readMessage reads a message's header, of at most 1 MiB, and hashes its body in
// relaxed form.
func readMessage(r io.Reader) (header []byte, body [sha256.Size]byte, err error) {
	var h bodyHash
	h.reset()
	buf := make([]byte, 0, 8<<10) // for most messages all that is needed
	for header == nil {
		if len(buf) == cap(buf) {
			if cap(buf) >= maxHeader {
				return nil, body, ErrHeaderTooBig
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if end := headerEnd(buf); end >= 0 || errors.Is(err, io.EOF) {
			var rest []byte
			header, rest = cutHeader(buf)
			h.write(rest)
			if header = bytes.Clone(header); header == nil {
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
	names, signed := pickFields(header, signedFields())
	if !bytes.HasPrefix(signed, []byte("from:")) {
		return nil, ErrNoFrom
	}
	if doubt := message.Header(header).Authors().Doubt; doubt != "" {
		return nil, fmt.Errorf("%w: %s", ErrAuthor, doubt)
	}
	bh := base64.StdEncoding.EncodeToString(bodyDigest[:])
	list := foldedNames(names)
	at := s.stamp()
	var out []byte
	for _, k := range s.Keys {
		alg, _, err := algorithm(k.Private)
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

// sign ends a field with the signature over text and the field itself.
func (k *Key) sign(field string, text []byte) ([]byte, error) {
	_, opts, err := algorithm(k.Private)
	if err != nil {
		return nil, err
	}
	d := sha256.New()
	_, _ = d.Write(text)
	own := relaxField(nil, []byte(field))
	_, _ = d.Write(own[:len(own)-2]) // without CRLF (section 3.7)
	sig, err := k.Private.Sign(rand.Reader, d.Sum(nil), opts)
	if err != nil {
		return nil, fmt.Errorf("signing with DKIM key %s: %w", k.Selector, err)
	}
	return appendFolded([]byte(field), base64.StdEncoding.EncodeToString(sig)), nil
}

// stamp is the time of signing.
func (s *Signer) stamp() string {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	return strconv.FormatInt(now().Unix(), 10)
}

func algorithm(key crypto.Signer) (Algorithm, crypto.SignerOpts, error) {
	switch key.(type) {
	case *rsa.PrivateKey:
		return RSA, crypto.SHA256, nil
	case ed25519.PrivateKey:
		return Ed25519, crypto.Hash(0), nil // the digest is what is signed (RFC 8463 section 3)
	}
	return "", nil, fmt.Errorf("mailauth: a key of type %T cannot sign mail", key)
}

// foldedNames renders h=.
func foldedNames(names []string) string {
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
