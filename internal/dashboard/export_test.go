// SPDX-License-Identifier: Apache-2.0

package dashboard

// Routes lists all routes, once there is a Handler.
func (d *Dashboard) Routes() []Route { return d.list }

// Unfriend makes nobody a friend.
func (d *Dashboard) Unfriend() { d.Users.Logins.Friend, d.tries.Friend = nil, nil }
