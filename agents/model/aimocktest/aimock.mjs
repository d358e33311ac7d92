// Starts aimock on a free port, says where, and ends when standard input does:
// a test that dies leaves nothing behind.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, logLevel: "silent" });
await mock.start();
process.stdout.write(mock.url + "\n");
process.stdin.on("data", () => {});
process.stdin.on("end", () => process.exit(0));
