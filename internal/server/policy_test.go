// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// policyAt requests a path from a host name of the service over TLS.
func policyAt(t *testing.T, s *servertest.Server, host, path string) (int, string) {
	t.Helper()
	config := s.TLS()
	config.ServerName = host
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr("https")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type") + "\n" + string(text)
}

// Each hosted domain has an MTA-STS policy under its own name, with a certificate. The id of its
// record changes with the policy.
func TestMTASTSPolicy(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const path = "/.well-known/mta-sts.txt"
		ids := map[string]bool{}
		for _, mode := range []string{"testing", "enforce", "none"} {
			domain := "/domains/" + s.Dev.Domain.ID.String()
			if mode != "testing" { // the default
				s.API("PATCH", domain, map[string]any{"mta_sts": mode})
			}
			age := map[bool]string{true: "604800", false: "86400"}[mode == "enforce"]
			want := "text/plain; charset=utf-8\nversion: STSv1\r\nmode: " + mode + "\r\nmx: " + s.Config.Host + "\r\nmax_age: " + age + "\r\n"
			if code, got := policyAt(t, s, "mta-sts.demo.test", path); code != 200 || got != want {
				t.Errorf("%s: %d %q", mode, code, got)
			}
			var d struct {
				Mode    string `json:"mta_sts"`
				Records []struct{ Kind, Type, Value string }
			}
			s.API("GET", domain, nil).Decode(t, &d)
			for _, r := range d.Records {
				if r.Kind == "MTA-STS" && r.Type == "TXT" {
					if id, ok := strings.CutPrefix(r.Value, "v=STSv1; id="); !ok || ids[id] {
						t.Errorf("%s: %q", mode, r.Value)
					}
					ids[r.Value[len("v=STSv1; id="):]] = true
				}
			}
			if d.Mode != mode {
				t.Errorf("the mode is %q", d.Mode)
			}
		}
		if len(ids) != 3 {
			t.Errorf("ids %v", ids)
		}
		if code, _ := policyAt(t, s, "mta-sts.demo.test", "/"); code != 404 {
			t.Errorf("another path: %d", code)
		}
		if code, text := policyAt(t, s, "mta-sts.elsewhere.test", path); code == 200 {
			t.Errorf("a domain that is not here: %s", text)
		}
		if code, text := policyAt(t, s, "localhost", path); strings.Contains(text, "STSv1") {
			t.Errorf("another host: %d %s", code, text)
		}
	})
}
