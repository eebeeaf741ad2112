// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"
)

// A stalled body gets a problem and delays nothing. After the whole body was read, there is no
// deadline.
func TestSlowBodies(t *testing.T) {
	var within time.Duration
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, arrived := limitBody(w, r, 1000, within)
		text, err := io.ReadAll(body)
		if err == nil {
			arrived()
			var in createDomainRequest
			err = decodeJSON(text, reflect.ValueOf(&in).Elem())
		}
		if err != nil {
			quiet().writeProblem(w, r, err)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		body   string
		within time.Duration
		status int
		code   string
	}{
		{`{"name":`, 50 * time.Millisecond, 408, "body_too_slow"},
		{`{"name":"a.test"}   `, time.Minute, 200, ""},
	} {
		within = c.within
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n%s", c.body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var p problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil && c.status != 200 {
			t.Error(err)
		}
		if resp.StatusCode != c.status || p.Code != c.code || resp.Close != (c.status != 200) {
			t.Errorf("%q: %d %s, closed: %v", c.body, resp.StatusCode, p.Code, resp.Close)
		}
		_ = resp.Body.Close()
		_ = conn.Close()
	}
}
