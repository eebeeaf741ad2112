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

// maxRspamdReply bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 20

// call is a request to be made, perhaps several times.
type call struct {
	method string
	path   string // below /api/v1; {id} stands for id
	id     string
	query  url.Values
	body   *body     // nil for none
	key    string    // Idempotency-Key; "" for none
	again  bool      // repeating it does no harm, though its method doesn't say so
	into   io.Writer // takes the answer as it is; nil for JSON
	long   bool      // an attempt may take as long as it wants to
}

// answer is a success.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do makes a call and decodes the answer. It returns a *Problem for what the
// service refused.
func do[T any](ctx context.Context, c *Client, in call) (*T, error) {
	out, _, err := exchange[T](ctx, c, in)
	return out, err
}

// post makes a call with a JSON body; again says that it may be repeated
// without harm.
func post[T any](ctx context.Context, c *Client, path, id string, body any, again bool) (*T, error) {
	b, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	return do[T](ctx, c, call{method: http.MethodPost, path: path, id: id, body: b, again: again})
}

// exchange is do with the header of the answer.
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

// run makes a call whose answer is empty.
func (c *Client) run(ctx context.Context, in call) error {
	_, err := c.repeat(ctx, in)
	return err
}

// url is where a call goes. An id that is none would make another call of it.
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
		return nil, final{err}
	}
	content, err := in.body.open()
	if err != nil {
		return nil, final{err}
	}
	defer content.end(whole)
	r, err := http.NewRequestWithContext(ctx, in.method, to, content.reader())
	if err != nil {
		return nil, final{fmt.Errorf("mailstead: %w", err)}
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", c.agent)
	r.Header.Set("Accept", "application/json, application/problem+json, */*;q=0.5")
	if in.body != nil {
		r.Header.Set("Content-Type", in.body.media)
		if r.ContentLength = in.body.size; in.body.size < 0 {
			r.Header.Set("Expect", "100-continue") // the answer may be known without the files
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
		err = final{source}
	}
	if err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: %w", in.method, in.path, plain(err))
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

// plain is an error of net/http without the URL, which says nothing new.
func plain(err error) error {
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
			err = final{err} // what was written can't be taken back
		}
		return a, err
	}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(a.body) > maxAnswer {
		err = final{fmt.Errorf("it has more than %d bytes", maxAnswer)}
	}
	return a, err
}
