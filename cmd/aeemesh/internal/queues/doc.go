// Package queues is "aeemesh queues": it shows how many durable tasks wait for
// which agent, and says where nothing takes them.
package queues
