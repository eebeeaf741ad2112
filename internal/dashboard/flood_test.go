// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Visitors without a session can use few resources: short forms, and few at once from one network.
func TestFloodOfForms(t *testing.T) {
	s := servertest.Start(t, servertest.ProxyFrom("127.0.0.1/32"))
	// post starts a form and returns the status of the first response, which is 100 if the server
	// waits for the form.
	post := func(from, kind string, length int, form string) (net.Conn, int) {
		t.Helper()
		nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		expect := "Expect: 100-continue\r\n"
		if form != "" {
			expect = ""
		}
		_, err = fmt.Fprintf(nc, "PROXY TCP4 %s 127.0.0.1 4711 80\r\nPOST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			from, expect, kind, length, form)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return nc, a.StatusCode
	}
	const form = "application/x-www-form-urlencoded"
	long := "email=a%40b.example&password=" + strings.Repeat("x", 64<<10)
	// The server reads and limits a body that is not a form, too. Otherwise it would read the body
	// after the response, without a time limit.
	for _, kind := range []string{form, "text/plain"} {
		if _, status := post("192.0.2.9", kind, len(long), long); status != http.StatusRequestEntityTooLarge {
			t.Errorf("a long form as %s: %d", kind, status)
		}
	}
	var one net.Conn
	for n := range 100 {
		nc, status := post("192.0.2.9", form, 1000, "")
		if status != http.StatusContinue {
			t.Fatalf("form %d: %d", n, status)
		}
		one = nc
	}
	if _, status := post("192.0.2.9", form, 1000, ""); status != http.StatusTooManyRequests {
		t.Errorf("one form more: %d", status)
	}
	if _, status := post("192.0.2.10", form, 1000, ""); status != http.StatusContinue {
		t.Errorf("of another network: %d", status)
	}
	const wrong = "email=a%40b.example&password=x"
	if _, err := io.WriteString(one, wrong+strings.Repeat("x", 1000-len(wrong))); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(one), nil)
	if err != nil || a.StatusCode != http.StatusUnauthorized {
		t.Fatal(a, err)
	}
	_ = a.Body.Close()
	for status := 0; status != http.StatusContinue; { // the slot is released soon after
		_, status = post("192.0.2.9", form, 1000, "")
	}
}
