// Colours of users: apart for colour-blind eyes too, and never alone: beside each stand initials, and after the eighth a pattern.

// Chosen for distance under simulated protanopia, deuteranopia and tritanopia; a test measures it.
const LIGHT = ["#1d72d2", "#e69f00", "#773c98", "#5ab9ef", "#cc6342", "#1d9c75", "#d58fb8", "#435111"];
const DARK = ["#689de5", "#f0b429", "#8162d1", "#a9dbfe", "#cf6566", "#2fbf8f", "#e5adc8", "#8f9a48"];
const NOBODY = ["#8a93a0", "#6d7786"];

export const PATTERNS = ["plain", "stripes", "dots"];

let order = new Map();

/** Users in the order in which they were first seen: whoever comes later changes nobody's colour. */
export function setUsers(names) {
  order = new Map(names.map((name, index) => [name, index]));
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** How a user is painted: colour, colour of text on it, pattern. */
export function paintOf(user) {
  const dark = isDark();
  const palette = dark ? DARK : LIGHT;
  if (user === null || user === undefined) return { colour: NOBODY[dark ? 1 : 0], ink: "#ffffff", pattern: "plain" };
  if (!order.has(user)) order.set(user, order.size);
  const index = order.get(user);
  const colour = palette[index % palette.length];
  return { colour, ink: inkOn(colour), pattern: PATTERNS[Math.floor(index / palette.length) % PATTERNS.length] };
}

/** Black or white, whichever is read better. */
export function inkOn(colour) {
  return luminance(colour) > 0.22 ? "#0b0e13" : "#ffffff";
}

function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Two letters for a user: of the first and last part of the name. */
export function initials(user) {
  const words = user.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const own = words.length > 1 && /^(system|unix|user|oidc|serviceaccount)$/i.test(words[0]) ? words.slice(1) : words;
  const first = (word, count) => Array.from(word).slice(0, count).join("");
  const letters = own.length > 1 ? first(own[0], 1) + first(own.at(-1), 1) : first(own[0] ?? "?", 2);
  return letters.toUpperCase();
}

export const palettes = { light: LIGHT, dark: DARK };
