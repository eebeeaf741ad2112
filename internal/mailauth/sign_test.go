// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/mailstead/mailstead/internal/message/messagetest"
	"github.com/mailstead/mailstead/internal/needtest"
)

// signer returns a Signer with a key of each kind, and its published records.
func signer(t testing.TB) (*Signer, map[string]string) {
	t.Helper()
	s := &Signer{Domain: "client.test", Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
	published := map[string]string{}
	for _, a := range []Algorithm{RSA, Ed25519} {
		key, err := GenerateKey(a)
		if err != nil {
			t.Fatal(err)
		}
		txt, err := KeyRecord(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		s.Keys = append(s.Keys, Key{Selector: "sel-" + string(a), Private: key})
		published["sel-"+string(a)+"._domainkey.client.test"] = txt
	}
	return s, published
}

// messages are messages whose canonical forms differ.
func messages() map[string]string {
	return map[string]string{
		"plain":               "From: A <a@client.test>\r\nTo: b@mx.test\r\nSubject: hello\r\n\r\nHi,\r\n\r\nthere.\r\n",
		"no body":             "From: a@client.test\r\nSubject: x\r\n\r\n",
		"no empty line":       "From: a@client.test\r\nSubject: x\r\n",
		"empty lines at end":  "From: a@client.test\r\n\r\nx\r\n\r\n \t\r\n\r\n",
		"only empty lines":    "From: a@client.test\r\n\r\n\r\n\r\n \r\n",
		"no last line end":    "From: a@client.test\r\n\r\nx",
		"blanks":              "From:  a@client.test \r\nSubject:\ta  \t b\r\n\r\n  a \t b  \r\n\tc\r\n. \r\n",
		"folded":              "FROM: a@client.test\r\nTo: b@mx.test,\r\n\tc@mx.test,\r\n  d@mx.test\r\nSubject:\r\n folded\r\n\r\nx\r\n",
		"blank before colon":  "From : a@client.test\r\nSubject\t: x\r\n\r\nx\r\n",
		"twice":               "From: a@client.test\r\nReferences: <1@x>\r\nReferences: <2@x>\r\nTo: one@x\r\nTo: two@x\r\n\r\nx\r\n",
		"list and feedback":   "List-Unsubscribe: <https://x.test/u>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\nFeedback-ID: 1:2:3:ms\r\nFrom: a@client.test\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\nx\r\n",
		"eight bits":          "From: a@client.test\r\nSubject: grüße\r\n\r\ngrüße \xff\x00\r\n",
		"long lines":          "From: a@client.test\r\n\r\n" + strings.Repeat("x", 20000) + "\r\n" + strings.Repeat("y ", 5000) + "\r\n",
		"many empty lines":    "From: a@client.test\r\n\r\na" + strings.Repeat("\r\n", 9000) + "b\r\n",
		"colon-less line":     "From: a@client.test\r\nnonsense\r\nSubject: x\r\n\r\nx\r\n",
		"all the listed ones": "From: a@client.test\r\nSender: a@client.test\r\nReply-To: r@client.test\r\nCc: c@mx.test\r\nDate: Sat, 21 Nov 2026 00:00:00 +0000\r\nMessage-ID: <1@client.test>\r\nIn-Reply-To: <0@x>\r\nReferences: <0@x>\r\nX-Other: not signed\r\n\r\nx\r\n",
	}
}

func TestSignaturesVerify(t *testing.T) {
	s, published := signer(t)
	for name, msg := range messages() {
		sig, err := s.Sign([]byte(msg))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "colon-less line" || name == "no empty line" {
			continue // go-msgauth rejects incomplete and malformed messages
		}
		verify(t, name, string(sig)+msg, published, 2)
		for line := range strings.SplitSeq(string(sig), "\r\n") {
			if len(line) > 78 && !strings.Contains(line, "c=relaxed") {
				t.Errorf("%s: a line of %d characters: %s", name, len(line), line)
			}
		}
	}
}

func verify(t *testing.T, name, msg string, published map[string]string, want int) {
	t.Helper()
	found, err := dkim.VerifyWithOptions(strings.NewReader(msg), &dkim.VerifyOptions{LookupTXT: func(domain string) ([]string, error) {
		return []string{published[domain]}, nil
	}})
	if err != nil || len(found) != want {
		t.Fatalf("%s: %d signatures, %v", name, len(found), err)
	}
	for _, v := range found {
		if v.Err != nil || v.Domain != "client.test" || v.Time.Unix() != 1_700_000_000 {
			t.Errorf("%s: %+v\n%s", name, v, msg)
		}
	}
}

func TestReaderAndBytesAgree(t *testing.T) {
	s, _ := signer(t)
	s.Keys = s.Keys[1:] // Ed25519 is deterministic
	for name, msg := range messages() {
		want, err := s.Sign([]byte(msg))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := s.SignReader(strings.NewReader(msg))
		if err != nil || !bytes.Equal(whole, want) {
			t.Errorf("%s: read whole it differs, %v", name, err)
		}
		pieces, err := s.SignReader(iotest.OneByteReader(strings.NewReader(msg)))
		if err != nil || !bytes.Equal(pieces, want) {
			t.Errorf("%s: read byte by byte it differs, %v", name, err)
		}
	}
}

// Signatures detect added fields, and tolerate repaired line ends.
func TestWhatASignatureCovers(t *testing.T) {
	s, published := signer(t)
	msg := "From: a@client.test\r\nSubject: x\r\n\r\nx\r\n"
	sig, err := s.Sign([]byte(msg))
	if err != nil {
		t.Fatal(err)
	}
	for _, extra := range []string{"From: evil@mx.test", "Subject: y", "To: z@mx.test", "Reply-To: evil@mx.test", "Content-Type: text/html"} {
		found, err := dkim.VerifyWithOptions(strings.NewReader(string(sig)+extra+"\r\n"+msg), &dkim.VerifyOptions{
			LookupTXT: func(domain string) ([]string, error) { return []string{published[domain]}, nil },
		})
		if err != nil || len(found) != 2 || found[0].Err == nil || found[1].Err == nil {
			t.Errorf("%s was added unnoticed, %v", extra, err)
		}
	}
	// A mailing list may add its own List-Unsubscribe if there is none, but not a second one.
	verify(t, "a list's field", string(sig)+"List-Unsubscribe: <https://list.test/>\r\n"+msg, published, 2)
	offers := "List-Unsubscribe: <https://client.test/>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" + msg
	if sig, err = s.Sign([]byte(offers)); err != nil {
		t.Fatal(err)
	}
	for _, extra := range []string{"List-Unsubscribe: <https://evil.test/>", "List-Unsubscribe-Post: x"} {
		found, err := dkim.VerifyWithOptions(strings.NewReader(string(sig)+extra+"\r\n"+offers), &dkim.VerifyOptions{
			LookupTXT: func(domain string) ([]string, error) { return []string{published[domain]}, nil },
		})
		if err != nil || len(found) != 2 || found[0].Err == nil || found[1].Err == nil {
			t.Errorf("%s was added unnoticed, %v", extra, err)
		}
	}
	verify(t, "an offer", string(sig)+offers, published, 2)
	if sig, err = s.Sign([]byte(msg)); err != nil {
		t.Fatal(err)
	}
	verify(t, "an unsigned field", string(sig)+"X-Scanned: yes\r\n"+msg, published, 2)

	mended, err := s.Sign([]byte("From: a@client.test\nSubject: x\n\nx\ry\n"))
	if err != nil {
		t.Fatal(err)
	}
	verify(t, "mended line ends", string(mended)+"From: a@client.test\r\nSubject: x\r\n\r\nx\r\ny\r\n", published, 2)
}

func TestUnsignable(t *testing.T) {
	s, _ := signer(t)
	for _, msg := range []string{"", "\r\n", "Subject: x\r\n\r\nFrom: a@client.test\r\n", "X-From: a@b\r\n\r\n"} {
		if _, err := s.Sign([]byte(msg)); !errors.Is(err, ErrNoFrom) {
			t.Errorf("%q: %v", msg, err)
		}
	}
	huge := "From: a@client.test\r\nX: " + strings.Repeat("x", maxHeader) + "\r\n\r\n"
	if _, err := s.Sign([]byte(huge)); !errors.Is(err, ErrHeaderTooBig) {
		t.Errorf("huge: %v", err)
	}
	if _, err := s.SignReader(strings.NewReader(huge)); !errors.Is(err, ErrHeaderTooBig) {
		t.Errorf("huge, read: %v", err)
	}
	broken := errors.New("disk trouble")
	for _, msg := range []string{"From: a@b\r\n", "From: a@b\r\n\r\nx"} {
		if _, err := s.SignReader(&brokenReader{strings.NewReader(msg), broken}); !errors.Is(err, broken) {
			t.Errorf("broken: %v", err)
		}
	}
}

type brokenReader struct {
	r   *strings.Reader
	err error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	if n, err := b.r.Read(p); err == nil {
		return n, nil
	}
	return 0, b.err
}

// python3-dkim is an independent implementation of both algorithms.
func TestPythonVerifies(t *testing.T) {
	const program = `
import sys, dkim
n = int(sys.stdin.buffer.readline())
zone = {}
for _ in range(n):
    name, txt = sys.stdin.buffer.readline().rstrip(b"\n").split(b" ", 1)
    zone[name + b"."] = txt
msg = sys.stdin.buffer.read()
d = dkim.DKIM(msg)
print(all(d.verify(idx=i, dnsfunc=lambda name, timeout=5: zone[name if isinstance(name, bytes) else name.encode()]) for i in range(2)))
`
	python3 := needtest.Python(t, "dkim", "nacl")
	s, published := signer(t)
	for name, msg := range messages() {
		if name == "blank before colon" || name == "colon-less line" {
			continue // python3-dkim rejects obsolete and malformed messages
		}
		sig, err := s.Sign([]byte(msg))
		if err != nil {
			t.Fatal(err)
		}
		var in bytes.Buffer
		fmt.Fprintf(&in, "%d\n", len(published))
		for domain, txt := range published {
			fmt.Fprintf(&in, "%s %s\n", domain, txt)
		}
		in.Write(sig)
		in.WriteString(msg)
		cmd := exec.CommandContext(t.Context(), python3, "-c", program)
		cmd.Stdin = &in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if got := strings.TrimSpace(string(out)); got != "True" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestKeysSurviveMarshalling(t *testing.T) {
	for _, a := range []Algorithm{RSA, Ed25519} {
		key, err := GenerateKey(a)
		if err != nil {
			t.Fatal(err)
		}
		der, err := MarshalKey(key)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseKey(der)
		if err != nil {
			t.Fatal(err)
		}
		if pub, ok := back.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(key.Public()) {
			t.Errorf("%s: another key came back", a)
		}
		if _, err := ParseKey(der[:len(der)-1]); err == nil {
			t.Errorf("%s: half a key was taken", a)
		}
	}
	if _, err := GenerateKey("dsa"); err == nil {
		t.Error("a DSA key was made")
	}
}

func TestSplitTXT(t *testing.T) {
	long := strings.Repeat("x", 600)
	parts := SplitTXT(long)
	if len(parts) != 3 || strings.Join(parts, "") != long || len(parts[0]) != 255 {
		t.Errorf("%d parts", len(parts))
	}
	if parts = SplitTXT("short"); len(parts) != 1 || parts[0] != "short" {
		t.Errorf("%q", parts)
	}
}

func FuzzSign(f *testing.F) {
	for _, msg := range messages() {
		if len(msg) < 1000 {
			f.Add([]byte(msg))
		}
	}
	s, _ := signer(f)
	s.Keys = s.Keys[1:]
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := s.Sign(msg)
		b, err2 := s.SignReader(iotest.HalfReader(bytes.NewReader(msg)))
		if !errors.Is(err2, err) || !bytes.Equal(a, b) {
			t.Errorf("%q: %v, %v", msg, err, err2)
		}
	})
}

func benchMessage() []byte {
	return []byte("From: A <a@client.test>\r\nTo: b@mx.test\r\nSubject: benchmark\r\nDate: Sat, 21 Nov 2026 00:00:00 +0000\r\nMessage-ID: <1@client.test>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n" +
		strings.Repeat("The quick brown fox jumps over the lazy dog, and the dog is not amused at all\r\n", 50))
}

// BenchmarkSign measures both signatures of a 4 KiB message.
func BenchmarkSign(b *testing.B) {
	s, _ := signer(b)
	benchmarkSigner(b, s)
}

// BenchmarkSignOverhead is BenchmarkSign without keys.
func BenchmarkSignOverhead(b *testing.B) { benchmarkSigner(b, &Signer{Domain: "client.test"}) }

func benchmarkSigner(b *testing.B, s *Signer) {
	msg := benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Sign(msg); err != nil {
			b.Fatal(err)
		}
	}
}

// Messages with an unclear author are not signed.
func TestSignsClearAuthorsOnly(t *testing.T) {
	s, _ := signer(t)
	s.Keys = s.Keys[:1]
	for _, from := range messagetest.Froms(t) {
		_, err := s.Sign([]byte("From: " + from.Value + "\r\nSubject: x\r\n\r\nx\r\n"))
		if from.Problem == "" && err != nil || from.Problem != "" && !errors.Is(err, ErrUnclearAuthor) && !strings.Contains(strings.ReplaceAll(from.Value, "\r\n", ""), "\n") {
			t.Errorf("%q: %v", from.Value, err)
		}
	}
	for _, header := range []string{"From: a@own.test\r\nFrom: a@own.test", "From: a@own.test\r\nfrom\t: a@own.test", "From: a@own.test\r\nFrom\r\n : a@own.test"} {
		if _, err := s.Sign([]byte(header + "\r\n\r\nx\r\n")); !errors.Is(err, ErrUnclearAuthor) {
			t.Errorf("%q: %v", header, err)
		}
	}
}
