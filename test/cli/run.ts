import type { Io } from '../../cli/command.ts'
import { run } from '../../cli/run.ts'

export interface Ran {
  readonly code: number
  readonly out: string
  readonly notes: string
}

/** Runs one command line in this process. */
export async function sallyport(
  args: readonly string[],
  options: { environment?: Record<string, string>; stdin?: string } = {},
): Promise<Ran> {
  let out = ''
  let notes = ''
  const io: Io = {
    out: text => {
      out += text
    },
    note: text => {
      notes += text.endsWith('\n') ? text : `${text}\n`
    },
    environment: options.environment ?? {},
    readStdin: async () => options.stdin ?? '',
  }
  const code = await run(args, io)
  return { code, out, notes }
}
