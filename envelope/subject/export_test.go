package subject

// Subject builds the subject that [Map.Parse] would read as a.
func (m Map) Subject(a Address) (string, error) {
	switch a.Kind {
	case Live:
		return m.Live(a.Entity)
	case Bus, Human:
		if want := a.Kind.String(); EntityType(a.Entity) != want {
			return "", &Error{What: "entity", Value: a.Entity, Reason: "is not of type " + want}
		}
		return m.Live(a.Entity)
	case Ask:
		return m.Ask(a.Entity)
	case Work:
		return m.Work(a.Priority, a.Entity)
	case Reply:
		return m.Reply(a.Entity, a.ID)
	case Ctl:
		return m.Ctl(a.Entity)
	case Journal:
		return m.Journal(a.Entity, a.ID)
	case Audit:
		return m.Audit(a.Entity)
	case Schedule:
		return m.Schedule(a.Entity, a.ID)
	case Due:
		return m.Due(a.Priority, a.Entity)
	case Dead:
		return m.Dead(a.Entity, a.ID)
	}
	return "", &Error{What: "subject", Value: a.Entity, Part: "kind " + a.Kind.String(), Reason: "is unknown"}
}
