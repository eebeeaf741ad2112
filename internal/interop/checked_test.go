// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// checked is a client that validates its requests and responses with the OpenAPI document.
type checked struct {
	t      *testing.T
	s      *servertest.Server
	key    string
	router routers.Router
	seen   map[string]bool
}

// call makes a call and returns the response, which must have the status. A request that must be
// rejected may violate the document.
func (c *checked) call(method, path string, body any, status int) servertest.Response {
	c.t.Helper()
	if body == nil {
		return c.send(method, path, "", nil, status)
	}
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.send(method, path, "application/json", text, status)
}

// file sends a file.
func (c *checked) file(path, media, text string, status int) servertest.Response {
	c.t.Helper()
	return c.send("POST", path, media, []byte(text), status)
}

func (c *checked) send(method, path, media string, text []byte, status int) servertest.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.s.Dev.BaseURL+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	find, err := http.NewRequest(method, "/api/v1"+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	op, params, err := c.router.FindRoute(find)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	c.seen[op.Operation.OperationID] = true
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: op, Options: options}
	if status < 400 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			c.t.Errorf("%s %s: the document does not allow this request: %v", method, path, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: %d %s, not %d", method, path, resp.StatusCode, answer, status)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: options}
	out.SetBodyBytes(answer)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		c.t.Errorf("%s %s: the answer is not as the document says: %v\n%s", method, path, err, answer)
	}
	return servertest.Response{Status: resp.StatusCode, Header: resp.Header, Body: answer}
}

func (c *checked) id(method, path string, body any, status int) string {
	c.t.Helper()
	var one struct{ ID string }
	c.call(method, path, body, status).Decode(c.t, &one)
	return one.ID
}
