// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// page is what a view shows.
type page struct {
	Template string // its file, without the ending
	Title    string
	Section  string // which entry of the navigation it belongs to
	Owner    string // the mailbox whose owner sees it; "" for pages of the dashboard
	Open     bool   // for readers who have not signed in: with a frame, too
	Part     bool   // a part of a page, which a script asked for: no frame around it
	Status   int    // 0 is 200
	Data     any
}

// done is what an act did.
type done struct {
	To   string // where it goes on
	Told string // what was done, in a sentence: for the person and for the audit log
	Show *page  // shown instead of going on, for what is seen once, such as a new key
	// Customer is the account whose activity tells it, too: what an operator did with it.
	Customer db.ID
	// Give answers instead of going on, for what is downloaded once.
	Give func() error
}

type (
	view func(v *visit) (page, error)
	act  func(v *visit) (done, error)
)

// right is what somebody must be allowed to do.
type right int

const (
	anybody  right = iota // no need to sign in
	reading               // any member of the account
	working               // members, but not readers
	owning                // owners of the account
	operator              // of the service

	// readsMail is needed beside one of these: the right to read mail.
	readsMail right = 1 << 8
)

// router takes the routes. Views need the right to read and acts that to work,
// unless said otherwise.
type router struct {
	d    *Dashboard
	mux  *http.ServeMux
	list []Route
}

// Route is one of the dashboard's.
type Route struct {
	Method, Path string
	SignedIn     bool // only for people who have signed in
	Mail         bool // only for those who may read mail
}

func (r *router) enter(method string, need right, path string, f http.HandlerFunc) {
	r.list = append(r.list, Route{method, path, need != anybody, need&readsMail != 0})
	r.mux.HandleFunc(method+" "+path, f)
}

// view enters a page.
func (r *router) view(path string, f view) { r.viewFor(reading, path, f) }

func (r *router) viewFor(need right, path string, f view) {
	r.enter("GET", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *visit) error {
			p, err := f(v)
			if err != nil {
				return err
			}
			return v.show(p)
		})
	})
}

// act enters what a form does. form is the view that has the form: it is shown
// again, with what was entered and what is wrong with it.
func (r *router) act(path string, f act, form view) { r.actFor(working, path, f, form) }

func (r *router) actFor(need right, path string, f act, form view) {
	r.enter("POST", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *visit) error {
			err := v.readForm()
			if err != nil {
				return err
			}
			var did done
			if need != anybody && !v.personal() {
				err = v.meant(v.form.Get(madeFor))
			}
			if err == nil && need != anybody {
				err = v.begin()
			}
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.ended(err)
				return v.again(err, form)
			}
			return v.done(did)
		})
	})
}

// upload enters what a form with a file does. f reads the form itself, as a
// stream of at most so many bytes.
func (r *router) upload(path string, most int64, f act, form view) {
	r.enter("POST", working, path, func(w http.ResponseWriter, req *http.Request) {
		r.serveUpTo(most, w, req, working, func(v *visit) error {
			var did done
			err := v.begin()
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.ended(err)
				return v.again(err, form)
			}
			return v.done(did)
		})
	})
}

// back leads who asks for the address of an act, as the browser shows it above a
// form with an error, to the page that it belongs to.
func (r *router) back() {
	pages := map[string]bool{"/": true}
	for _, one := range r.list {
		pages[one.Path] = pages[one.Path] || one.Method == "GET"
	}
	for _, one := range r.list {
		up := 0
		for at := one.Path; !pages[at]; at = path.Dir(at) {
			up++
		}
		if up == 0 {
			continue
		}
		r.mux.HandleFunc("GET "+one.Path, func(w http.ResponseWriter, req *http.Request) {
			to := req.URL.EscapedPath()
			for range up {
				to = path.Dir(to)
			}
			http.Redirect(w, req, to, http.StatusSeeOther)
		})
	}
}

// file enters a download.
func (r *router) file(path string, f func(v *visit) error) { r.fileFor(reading, path, f) }

func (r *router) fileFor(need right, path string, f func(v *visit) error) {
	r.enter("GET", need, path, func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, need, f) })
}

// serve finds out who visits, and answers for errors and panics.
func (r *router) serve(w http.ResponseWriter, req *http.Request, need right, f func(*visit) error) {
	if need != anybody {
		r.serveUpTo(maxForm, w, req, need, f)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangersTime)) // the server has a bound of its own, too
	leave, ok := r.d.strangers.Acquire(client(req))
	if !ok { // a page would be one more
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests at the same time. Try again in a moment.", http.StatusTooManyRequests)
		return
	}
	defer leave()
	most := int64(strangersForm)
	if _, owner := (&visit{d: r.d, r: req}).ownersTicket(); owner {
		most = ownersForm
	}
	r.serveUpTo(most, w, req, need, f)
}

// serveUpTo is serve for requests with bodies of at most so many bytes.
func (r *router) serveUpTo(most int64, w http.ResponseWriter, req *http.Request, need right, f func(*visit) error) {
	req.Body = http.MaxBytesReader(w, req.Body, most)
	v := &visit{d: r.d, w: w, r: req, ctx: req.Context()}
	defer func() {
		if x := recover(); x != nil {
			if x == http.ErrAbortHandler { //nolint:errorlint // a sentinel value
				panic(x)
			}
			r.d.Log.ErrorContext(v.ctx, "panic", "request", v.requestID(), slog.Any("value", x), "stack", string(debug.Stack()))
			v.failed(errors.New("panic"))
		}
	}()
	err := v.arrive(need)
	if errors.Is(err, errSignIn) {
		v.toSignIn()
		return
	}
	if err == nil {
		err = f(v)
	}
	if err != nil && !errors.Is(err, errAnswered) {
		v.failed(err)
	}
}

// elsewhere answers for paths that are no page.
func (r *router) elsewhere(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req, anybody, func(*visit) error { return notFound() })
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such page.") }

// errAnswered says that a view has answered by itself.
var errAnswered = errors.New("answered")

// errSignIn says that a page is for people who have signed in.
var errSignIn = errors.New("not signed in")

// arrive finds out who visits, and whether that is enough.
func (v *visit) arrive(need right) error {
	if c, err := v.r.Cookie(v.cookie("session")); err == nil {
		in, err := v.d.Users.Session(v.ctx, c.Value)
		if err != nil && !fault.Is(err, fault.Unknown) {
			return err
		}
		v.in, v.known = in, err == nil
	}
	if v.known && !v.in.Halfway {
		var err error
		if v.account, err = v.d.Accounts.Get(v.ctx, v.in.Account); err != nil {
			return err
		}
	} else if need != anybody {
		return v.signedOut()
	}
	may := need&readsMail == 0 || v.in.Mail
	switch need &^= readsMail; {
	case need == anybody:
	case v.account.Status == account.Suspended && !v.personal(): // from there one gets to others
		return fault.New(fault.Denied, "account_suspended", "This account is suspended. Ask the operator of the service.")
	case need == working && v.in.Role == user.Reader,
		need == owning && v.in.Role != user.Owner:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	case !may:
		return errMail
	case need == operator && !v.operates():
		return notFound()
	case need == operator && v.in.Role == user.Reader && v.r.Method != http.MethodGet:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	}
	return nil
}

// errMail is what people are told who may not read mail.
var errMail = fault.New(fault.Denied, "mail", "You may not read mail of this account. Ask an owner to allow it on the page People.")

// personal reports whether a path is about the person, whichever account is looked at.
func (v *visit) personal() bool {
	return strings.HasPrefix(v.r.URL.Path, "/profile") || secretPath(v.r)
}

// signedOut is what is told to who is not signed in, or no longer. A form is not led
// away from: what was entered would be lost, and a browser can send it again.
func (v *visit) signedOut() error {
	if v.r.Method != http.MethodPost || v.scripted() {
		return errSignIn
	}
	return fault.New(fault.Unknown, "signed_out", "You are not signed in any more, so nothing was done. Sign in in another tab, then reload this page: what you entered is sent again.")
}

// toSignIn sends a visitor to sign in, and back after that.
func (v *visit) toSignIn() {
	to := "/sign-in"
	if v.r.Method == http.MethodGet && v.r.URL.Path != "/" && v.r.Header.Get("HX-Request") == "" {
		to += "?" + query("to", v.r.URL.RequestURI())
	}
	v.redirect(to)
}

// redirect goes on at a path of ours.
func (v *visit) redirect(to string) {
	if v.r.Header.Get("HX-Request") != "" {
		v.w.Header().Set("HX-Redirect", to)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
}

// ours reports whether a path that a request brought leads to a page here.
func ours(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n\t")
}

// failed answers with a page that says what is the matter.
func (v *visit) failed(err error) {
	var f *fault.Error
	if errors.Is(err, context.Canceled) {
		return
	}
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		// Not its path, which may be a link that lets somebody in.
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. It was logged as request %s.", v.requestID())
	}
	status, title := status(f.Kind)
	v.retryAfter(f)
	if err := v.show(page{Template: "error", Title: title, Status: status, Data: v.sorry(f)}); err != nil {
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		http.Error(v.w, title, status)
	}
}

// retryAfter tells programs when the request may go through.
func (v *visit) retryAfter(err error) {
	var f *fault.Error
	if errors.As(err, &f) && f.Retry > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.Retry.Seconds()))))
	}
}

// sorry is a page without what was asked for, and where to go on.
type sorry struct {
	Message, To, Action string
	Beside              bool // in a tab of its own: a form in this one can be sent again then
}

func (v *visit) sorry(f *fault.Error) sorry {
	s := sorry{Message: f.Message, To: "/", Action: "Sign in", Beside: f.Kind == fault.Unknown || f.Code == codeElsewhere}
	path := v.r.URL.Path + "/"
	switch {
	case strings.HasPrefix(path, "/phone/"):
		s.To = "" // a phone has no other page here
	case strings.HasPrefix(path, "/mailbox/"):
		s.To, s.Action = "/mailbox", "To your mailbox"
	case f.Code == codeElsewhere:
		s.To, s.Action = "/profile", "To your accounts"
	case v.known && !v.in.Halfway:
		s.Action = "To the start"
	}
	return s
}

// status is how the door says the kinds of error.
func status(k fault.Kind) (code int, title string) {
	switch k {
	case fault.Invalid:
		return http.StatusUnprocessableEntity, "That needs correcting"
	case fault.Denied:
		return http.StatusForbidden, "Not allowed"
	case fault.Unknown:
		return http.StatusUnauthorized, "Please sign in"
	case fault.NotFound:
		return http.StatusNotFound, "Not found"
	case fault.Conflict:
		return http.StatusConflict, "That is not possible now"
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge, "Too large"
	case fault.Limited:
		return http.StatusTooManyRequests, "Too many tries"
	case fault.OverQuota:
		return http.StatusInsufficientStorage, "No room"
	case fault.Unavailable:
		return http.StatusServiceUnavailable, "Not available at the moment"
	}
	return http.StatusInternalServerError, "Something went wrong"
}
