// What stands between the search box and the search's worker. A flag is looked for without its dashes, since the worker
// takes a leading dash for "without". A question is looked for without its marks and its small words: the worker would
// find "it" in "iterations". A title counts ten times as much as text, and not a thousand times.
const SMALL = new Set(
  ("a an and any are as at be by can do does for from get have how i in into is it its me my need of on or should take " +
    "than that the their them there they this to use used was we what when where which who why will with without you your").split(" "),
);
const bare = (asked) => {
  const words = asked.replace(/(^|\s)--?(?=\w)/g, "$1").split(/\s+/).map((word) => word.replace(/[?,;.!]+$/, ""));
  const telling = words.filter((word) => !SMALL.has(word.toLowerCase()));
  return (telling.length ? telling : words).join(" ");
};
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  if (typeof message?.data === "string") return post.call(this, { ...message, data: bare(message.data) }, ...rest);
  if (message?.data?.config?.fields?.title) message.data.config.fields.title.boost = 10;
  return post.call(this, message, ...rest);
};
