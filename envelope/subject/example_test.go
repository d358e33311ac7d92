package subject_test

import (
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

func Example() {
	m, err := subject.New("acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	live, _ := m.Live("agent.reviewer")
	work, _ := m.Work("high", "agent.reviewer")
	fmt.Println(live)
	fmt.Println(work)

	a, _ := m.Parse("acme.aee.reply.agent.reviewer.urn=3Atask=3A17")
	fmt.Println(a.Kind, a.Entity, a.ID)

	_, err = m.Live("agent.my reviewer")
	fmt.Println(err)
	// Output:
	// acme.agent.reviewer
	// acme.aee.work.high.agent.reviewer
	// reply agent.reviewer urn:task:17
	// entity "agent.my reviewer": token 2 holds a space (U+0020)
}
