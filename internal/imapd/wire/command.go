// SPDX-License-Identifier: Apache-2.0

package wire

// Command is one command of a client, a pointer to one of this package's
// structs.
type Command interface {
	// Name returns the command's name in upper case, such as "UID FETCH".
	Name() string
}

// command takes what follows the tag.
func (r *Reader) command() (Command, error) {
	if err := r.sp(); err != nil {
		return nil, err
	}
	name := r.word()
	if string(name) == "UID" {
		if err := r.sp(); err != nil {
			return nil, err
		}
		return r.uidCommand(r.word())
	}
	if cmd := simpleCommand(name); cmd != nil {
		return cmd, nil
	}
	parse := r.parserFor(name)
	if parse == nil {
		if cmd, err := r.messageCommand(name, false); cmd != nil || err != nil {
			return cmd, err
		}
		return nil, bad("There is no such command.")
	}
	if err := r.sp(); err != nil {
		return nil, err
	}
	return parse()
}

// parserFor returns what reads the arguments of a command that has some and is
// not about messages.
func (r *Reader) parserFor(name []byte) func() (Command, error) {
	switch string(name) {
	case "LOGIN":
		return r.login
	case "AUTHENTICATE":
		return r.authenticate
	case "SELECT", "EXAMINE":
		readOnly := name[0] == 'E'
		return func() (Command, error) { return r.selectMailbox(readOnly) }
	case "CREATE":
		return r.create
	case "DELETE":
		return r.delete
	case "RENAME":
		return r.rename
	case "SUBSCRIBE":
		return r.subscribe
	case "UNSUBSCRIBE":
		return r.unsubscribe
	case "LIST":
		return r.listMailboxes
	case "LSUB":
		return r.lsub
	case "STATUS":
		return r.status
	case "APPEND":
		return r.append
	case "ENABLE":
		return r.enable
	case "ID":
		return r.id
	case "COMPRESS":
		return r.compress
	case "GETQUOTA":
		return r.getQuota
	case "GETQUOTAROOT":
		return r.getQuotaRoot
	case "SETQUOTA":
		return r.setQuota
	}
	return nil
}

// uidCommand takes the command after UID.
func (r *Reader) uidCommand(name []byte) (Command, error) {
	if string(name) == "EXPUNGE" {
		if err := r.sp(); err != nil {
			return nil, err
		}
		return r.uidExpunge()
	}
	cmd, err := r.messageCommand(name, true)
	if cmd == nil && err == nil {
		err = bad("There is no such UID command.")
	}
	return cmd, err
}

// messageCommand takes a command that has a UID form; nil for no such one.
func (r *Reader) messageCommand(name []byte, uid bool) (Command, error) {
	var parse func(uid bool) (Command, error)
	switch string(name) {
	case "FETCH":
		parse = r.fetch
	case "STORE":
		parse = r.store
	case "SEARCH":
		parse = r.search
	case "COPY":
		parse = r.copy
	case "MOVE":
		parse = r.move
	case "SORT":
		parse = r.sort
	case "THREAD":
		parse = r.thread
	case "REPLACE":
		parse = r.replace
	default:
		return nil, nil
	}
	if err := r.sp(); err != nil {
		return nil, err
	}
	return parse(uid)
}

// uidName returns the name of a command in its plain or UID form.
func uidName(uid bool, name string) string {
	if uid {
		return "UID " + name
	}
	return name
}
