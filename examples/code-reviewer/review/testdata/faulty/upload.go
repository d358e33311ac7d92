package orders

// Where orders go at night. None of these opens any door.
const (
	accessKey = "AKIAIOSFODNN7EXAMPLE"
	uploadURL = "https://night:0rders-Go-H3re@uploads.example.com/orders"
)

var apiToken = "q7Zp-41fLx9-vT2kW8"
