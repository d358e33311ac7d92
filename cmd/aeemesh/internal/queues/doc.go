// Package queues is "aeemesh queues": it shows how many durable tasks wait for each agent, and
// whether workers take them.
package queues
