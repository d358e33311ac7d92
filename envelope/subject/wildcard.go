package subject

// AllLive returns one pattern for each conventional type with workers: agents and services.
func (m Map) AllLive() []string {
	return []string{m.dot + TypeAgent + ".>", m.dot + TypeService + ".>"}
}

// AllBus returns the pattern of all broadcasts.
func (m Map) AllBus() string { return m.dot + TypeBus + ".>" }

// AllHuman returns the pattern of all people's inboxes.
func (m Map) AllHuman() string { return m.dot + TypeHuman + ".>" }

// AllAsk returns the pattern of all plain text requests.
func (m Map) AllAsk() string { return m.dot + root + ".ask.>" }

// AllCtl returns the pattern of all control messages.
func (m Map) AllCtl() string { return m.dot + root + ".ctl.>" }

// AllWork returns the pattern of all durable tasks.
func (m Map) AllWork() string { return m.dot + root + ".work.>" }

// AllWorkByPriority returns one pattern of durable tasks for each priority. [Map.AllWork] also
// matches subjects with another token as priority, from which no worker draws.
func (m Map) AllWorkByPriority() []string {
	var all []string
	for _, p := range Priorities() {
		all = append(all, m.dot+root+".work."+p+".>")
	}
	return all
}

// WorkOf returns the pattern of one entity's durable tasks of all priorities.
func (m Map) WorkOf(entity string) (string, error) {
	return m.entity(root+".work.*.", entity)
}

// AllSchedule returns the pattern of all delayed tasks that wait.
func (m Map) AllSchedule() string { return m.dot + root + ".schedule.>" }

// ScheduleOf returns the pattern of one entity's delayed tasks that wait.
func (m Map) ScheduleOf(entity string) (string, error) {
	return m.allIDs(root+".schedule.", entity)
}

// AllDue returns the pattern of all delayed tasks whose time has come.
func (m Map) AllDue() string { return m.dot + root + ".due.>" }

// DueOf returns the pattern of one entity's delayed tasks of all priorities whose time has come.
func (m Map) DueOf(entity string) (string, error) {
	return m.entity(root+".due.*.", entity)
}

// AllDead returns the pattern of all dead letters.
func (m Map) AllDead() string { return m.dot + root + ".dead.>" }

// AllCounts returns the pattern of all counters.
func (m Map) AllCounts() string { return m.dot + root + ".count.>" }

// CountsOf returns the pattern of one entity's counters.
func (m Map) CountsOf(entity string) (string, error) {
	if err := ValidateEntity(entity); err != nil {
		return "", err
	}
	return m.dot + root + ".count.of." + Escape(entity) + ".>", nil
}

// CountsOfTrees returns the pattern of the counters of all trees.
func (m Map) CountsOfTrees() string { return m.dot + root + ".count.tree.>" }

// DeadOf returns the pattern of one entity's dead letters.
func (m Map) DeadOf(entity string) (string, error) {
	return m.allIDs(root+".dead.", entity)
}

// AllReplies returns the pattern of all replies to durable tasks.
func (m Map) AllReplies() string { return m.dot + root + ".reply.>" }

// RepliesTo returns the pattern of the replies to all durable tasks of one entity. It does not
// match replies of entities whose names begin with this entity's name.
func (m Map) RepliesTo(entity string) (string, error) {
	return m.allIDs(root+".reply.", entity)
}

// AllJournal returns the pattern of all journals.
func (m Map) AllJournal() string { return m.dot + root + ".journal.>" }

// JournalOf returns the pattern of one entity's journal.
func (m Map) JournalOf(entity string) (string, error) {
	return m.allIDs(root+".journal.", entity)
}

func (m Map) allIDs(lane, entity string) (string, error) {
	s, err := m.entity(lane, entity)
	if err != nil {
		return "", err
	}
	return s + ".*", nil
}
