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

// If a reader such as `head` has seen enough, that is not a failure.
process.stdout.on('error', error => process.exit((error as NodeJS.ErrnoException).code === 'EPIPE' ? EXIT.ok : 1))

// If nobody reads the log any more, that is no reason to stop serving.
process.stderr.on('error', () => {})

// Node would exit with 0, as if everything had succeeded.
process.once('beforeExit', () => {
  io.note('sallyport: ended early: nothing is left that it could wait for')
  exit(EXIT.runtime)
})

run(process.argv.slice(2), io).then(exit, error => {
  io.note(`sallyport: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  exit(EXIT.runtime)
})

/** A full disk in `token create > FILE` must be a failure. Node's stream would report it too late, and a partial write never. */
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

/** Ends once stdout has everything. Whatever is still open after a second signal or a failed start must not keep us. */
function exit(code: number): void {
  // A stopped terminal blocks even an empty write.
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
