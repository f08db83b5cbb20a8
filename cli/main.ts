/** The program: `bin/sallyport.js` loads this file and nothing else does. */
import { fstatSync, writeFileSync } from 'node:fs'
import { isatty } from 'node:tty'
import type { Io } from './command.ts'
import { endProcess } from './end-process.ts'
import { EXIT, Failure, fileProblem } from './failure.ts'
import { run } from './run.ts'

const STDOUT = 1

const io: Io = {
  out: isFile(STDOUT) ? toFile : text => void process.stdout.write(text),
  note: text => void process.stderr.write(text.endsWith('\n') ? text : `${text}\n`),
  environment: process.env,
  readStdin,
}

// A reader such as `head` that has seen enough is no failure.
process.stdout.on('error', error => process.exit((error as NodeJS.ErrnoException).code === 'EPIPE' ? EXIT.ok : 1))

// Nobody reads the logs any more: no reason to stop serving.
process.stderr.on('error', () => {})

// Node would end with 0, as if all had been well.
process.once('beforeExit', () => {
  io.note('sallyport: what it waits for will never come')
  exit(EXIT.runtime)
})

run(process.argv.slice(2), io).then(exit, error => {
  io.note(`sallyport: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  exit(EXIT.runtime)
})

/** The full disk of `token create > FILE` is a failure; Node's stream would tell of it too late, and of a part that was written never. */
function toFile(text: string): void {
  try {
    writeFileSync(STDOUT, text)
  } catch (error) {
    throw new Failure(EXIT.runtime, `cannot write the output: ${fileProblem(error)}`, { cause: error })
  }
}

function isFile(descriptor: number): boolean {
  const stat = fstatSync(descriptor)
  return stat.isFile() || (stat.isCharacterDevice() && !isatty(descriptor))
}

/** Ends once stdout has everything; whatever is still open, a second signal or a failed start must not keep us. */
function exit(code: number): void {
  // A terminal that was stopped holds up whoever writes to it, be it nothing.
  if (process.stdout.writableLength === 0) void endProcess(code)
  else process.stdout.write('', () => void endProcess(code))
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
