/** The program: `bin/sallyport.js` loads this file and nothing else does. */
import type { Io } from './command.ts'
import { EXIT } from './failure.ts'
import { run } from './run.ts'

const io: Io = {
  out: text => void process.stdout.write(text),
  note: text => void process.stderr.write(text.endsWith('\n') ? text : `${text}\n`),
  environment: process.env,
  readStdin,
}

// A reader such as `head` that has seen enough is no failure.
process.stdout.on('error', error => process.exit((error as NodeJS.ErrnoException).code === 'EPIPE' ? EXIT.ok : 1))

// Nobody reads the logs any more: no reason to stop serving.
process.stderr.on('error', () => {})

run(process.argv.slice(2), io).then(exit, error => {
  io.note(`sallyport: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  exit(EXIT.runtime)
})

/** Ends once stdout has everything; whatever is still open, a second signal or a failed start must not keep us. */
function exit(code: number): void {
  process.stdout.write('', () => process.exit(code))
}

async function readStdin(): Promise<string> {
  let text = ''
  process.stdin.setEncoding('utf8')
  for await (const chunk of process.stdin) {
    text += chunk
    if (text.length > 1_048_576) break
  }
  return text
}
