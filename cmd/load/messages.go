// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	mathrand "math/rand/v2"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
)

// Words in 1 % of the messages, for SEARCH.
const (
	rareSubject = "quarterly"
	rareBody    = "zeitgeber"
)

// randomText returns lines of words with about size bytes. The same seed gives the same text.
func randomText(r *mathrand.Rand, size int) string {
	const syllables = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu sa se si so su ta te ti to tu"
	list := strings.Fields(syllables)
	var b strings.Builder
	column := 0
	for b.Len() < size {
		word := ""
		for range 1 + r.IntN(4) {
			word += list[r.IntN(len(list))]
		}
		if column += len(word) + 1; column > 72 {
			b.WriteString("\r\n")
			column = len(word)
		} else if column > len(word)+1 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

func newRand(seed uint64) *mathrand.Rand { return mathrand.New(mathrand.NewPCG(seed, 1)) }

// plainMessage returns a message of about 4 KiB.
func plainMessage(seed int, from, to string) []byte {
	r := newRand(uint64(seed))
	return fmt.Appendf(nil, "From: Sender <%s>\r\nTo: <%s>\r\nSubject: %s\r\nDate: Mon, 02 Nov 2026 10:%02d:%02d +0000\r\n"+
		"Message-ID: <%d.%d@bench-sink.net>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n",
		from, to, randomText(r, 30)[:28], seed/60%60, seed%60, seed, r.Uint32(), randomText(r, 4<<10-330))
}

// folderMessages returns the messages of the IMAP folder: every fourth has two parts, and 1 % have
// a rare word in the subject, another 1 % in the body.
func folderMessages(n, size int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		r := newRand(uint64(i))
		subject, body := randomText(r, 40)[:36], randomText(r, size-700)
		if i%100 == 7 {
			subject = "The " + rareSubject + " " + subject
		}
		if i%100 == 42 {
			half := middleLineEnd(body)
			body = body[:half] + " " + rareBody + body[half:]
		}
		head := fmt.Sprintf("Received: from mx.bench-sink.net (mx.bench-sink.net [192.0.2.%d])\r\n\tby mail.bench-host.net with ESMTPS id %08x;\r\n"+
			"\tMon, 02 Nov 2026 10:00:00 +0000\r\nFrom: \"Correspondent %d\" <c%d@bench-sink.net>\r\nTo: Me <me@bench-home.net>\r\n"+
			"Cc: Somebody Else <else@bench-home.net>\r\nSubject: %s\r\nDate: Mon, 02 Nov 2026 10:%02d:%02d +0000\r\nMessage-ID: <%d.letter@bench-sink.net>\r\nMIME-Version: 1.0\r\n",
			i%250, i, i%500, i%500, subject, i/60%60, i%60, i)
		if i%4 != 0 {
			all[i] = []byte(head + "Content-Type: text/plain; charset=utf-8\r\n\r\n" + body + "\r\n")
			continue
		}
		half := middleLineEnd(body)
		all[i] = []byte(head + "Content-Type: multipart/alternative; boundary=b0\r\n\r\n--b0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" +
			body[:half] + "\r\n--b0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>" + body[half+2:] + "</p>\r\n--b0--\r\n")
	}
	return all
}

// middleLineEnd returns the end of the line in the middle of a text.
func middleLineEnd(s string) int {
	half := len(s) / 2
	return half + strings.Index(s[half:], "\r\n")
}

// signer signs as an external sender of mail to the MX.
type signer struct {
	key    crypto.Signer
	Record string // for selector "s", to publish
}

func newSigner() (*signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return &signer{key, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(public)}, nil
}

func (s *signer) sign(message []byte, domain string) ([]byte, error) {
	var out bytes.Buffer
	err := dkim.Sign(&out, bytes.NewReader(message), &dkim.SignOptions{
		Domain: domain, Selector: "s", Signer: s.key, Hash: crypto.SHA256,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: []string{"From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"},
	})
	return out.Bytes(), err
}
