// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxAnswer is the limit for a response, in bytes.
const maxAnswer = 64 << 20

// call is a request to make, possibly several times.
type call struct {
	method string
	path   string // below /api/v1; {id} stands for id
	id     string
	query  url.Values
	body   *body     // nil for none
	key    string    // Idempotency-Key; "" for none
	again  bool      // safe to repeat, although its method is not
	into   io.Writer // receives the raw response; nil for JSON
	long   bool      // an attempt has no time limit
}

// answer is a successful response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do makes a call and decodes the response. It returns a *Problem if the service rejects the
// request.
func do[T any](ctx context.Context, c *Client, in call) (*T, error) {
	out, _, err := exchange[T](ctx, c, in)
	return out, err
}

// post makes a call with a JSON body; again means that it is safe to repeat.
func post[T any](ctx context.Context, c *Client, path, id string, body any, again bool) (*T, error) {
	b, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	return do[T](ctx, c, call{method: http.MethodPost, path: path, id: id, body: b, again: again})
}

// exchange is do with the response header.
func exchange[T any](ctx context.Context, c *Client, in call) (*T, http.Header, error) {
	a, err := c.repeat(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	out := new(T)
	if err := json.Unmarshal(a.body, out); err != nil {
		return nil, nil, fmt.Errorf("mailstead: the answer to %s %s can't be read: %w", in.method, in.path, err)
	}
	return out, a.header, nil
}

// run makes a call whose response is empty.
func (c *Client) run(ctx context.Context, in call) error {
	_, err := c.repeat(ctx, in)
	return err
}

// url returns the URL of a call. It rejects an invalid id, which could address another operation.
func (c *Client) url(in call) (string, error) {
	path := in.path
	if strings.Contains(path, "{id}") {
		if in.id == "" || in.id == "." || in.id == ".." {
			return "", fmt.Errorf("mailstead: %s %s: the id is missing", in.method, in.path)
		}
		path = strings.ReplaceAll(path, "{id}", url.PathEscape(in.id))
	}
	if len(in.query) > 0 {
		path += "?" + in.query.Encode()
	}
	return c.base + path, nil
}

// once makes one attempt.
func (c *Client) once(whole context.Context, in call) (*answer, error) {
	ctx := whole
	if c.timeout > 0 && !in.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	to, err := c.url(in)
	if err != nil {
		return nil, finalError{err}
	}
	content, err := in.body.open()
	if err != nil {
		return nil, finalError{err}
	}
	defer content.end(whole)
	r, err := http.NewRequestWithContext(ctx, in.method, to, content.reader())
	if err != nil {
		return nil, finalError{fmt.Errorf("mailstead: %w", err)}
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", c.agent)
	r.Header.Set("Accept", "application/json, application/problem+json, */*;q=0.5")
	if in.body != nil {
		r.Header.Set("Content-Type", in.body.media)
		if r.ContentLength = in.body.size; in.body.size < 0 {
			r.Header.Set("Expect", "100-continue") // the service may respond without the files
		}
	}
	if in.key != "" {
		r.Header.Set("Idempotency-Key", in.key)
	}
	resp, err := c.http.Do(r)
	if source := content.failed(); source != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		err = finalError{source}
	}
	if err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: %w", in.method, in.path, withoutURL(err))
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	a, err := c.read(resp, in)
	if err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: reading the answer: %w", in.method, in.path, err)
	}
	if a.status < 200 || a.status > 299 {
		return nil, problem(a)
	}
	return a, nil
}

// withoutURL returns an error of net/http without the URL, which is redundant.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (c *Client) read(resp *http.Response, in call) (*answer, error) {
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if in.into != nil && resp.StatusCode == http.StatusOK {
		n, err := io.Copy(in.into, resp.Body)
		if err != nil && n > 0 {
			err = finalError{err} // written data can't be taken back
		}
		return a, err
	}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(a.body) > maxAnswer {
		err = finalError{fmt.Errorf("it has more than %d bytes", maxAnswer)}
	}
	return a, err
}
